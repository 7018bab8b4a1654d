"""Work on sealed segments: cleaning, expiry, compression, scrubbing, and replacement."""
