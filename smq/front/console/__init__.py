"""The console: pages for the broker's operator, rendered here without a build step."""
