document.body.append("lorogo");
