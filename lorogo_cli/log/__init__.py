"""`lorogo log`: list, read, verify, repair, export and ship the directory of a log."""
