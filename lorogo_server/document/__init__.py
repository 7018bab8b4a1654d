"""One open document: its host, the updates it accepts or refuses, its ACKs, and its load."""
