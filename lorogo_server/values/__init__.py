"""Documents as JSON: the value of a document, JSONPath queries, and JSON Patch."""
