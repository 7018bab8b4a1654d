"""Data that lorogo stores in NATS: streams and buckets, document statuses, and snapshots."""
