"""The stack under measurement: nats-server, document servers, load processes, and their usage."""
