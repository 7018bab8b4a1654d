"""Journals as servers and clients exchange them: records, pages of a feed, recovery requests."""
