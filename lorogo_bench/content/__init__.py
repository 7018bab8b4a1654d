"""Content that load processes write: keys, bulk values, and editing traces."""
