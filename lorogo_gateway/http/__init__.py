"""Documents, the feed and the operator's facts over HTTP."""
