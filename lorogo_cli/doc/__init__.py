"""`lorogo doc` and `lorogo feed`: read, edit and follow documents."""
