"""HTTP operations on documents: reads, writes, versions, and the feed."""
