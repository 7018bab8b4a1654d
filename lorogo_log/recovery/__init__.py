"""Repair of segments after a crash; cleaning, expiry, compression, scrubbing, replacement of sealed ones."""
