"""The gateway process: the app, its listener, TLS, pages, and sign-in."""
