"""Long-running commands: `lorogo serve`, `lorogo gateway`, `lorogo auth`."""
