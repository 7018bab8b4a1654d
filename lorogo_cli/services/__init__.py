"""Commands that run until they are stopped: `lorogo serve`, `lorogo gateway`, `lorogo auth`."""
