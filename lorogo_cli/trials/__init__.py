"""`lorogo chaos` and `lorogo bench`."""
