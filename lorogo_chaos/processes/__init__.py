"""Processes that a run starts and disturbs: nats-servers, document servers, links, and disks."""
