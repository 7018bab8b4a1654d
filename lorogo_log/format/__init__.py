"""The bytes of a segment: headers, frames, batches, the index, and file names."""
