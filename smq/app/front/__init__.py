"""The HTTP server process. The application itself is smq.front."""
