"""Work outside the event loop: decode sandbox, keepalive process, child processes, and threads."""
