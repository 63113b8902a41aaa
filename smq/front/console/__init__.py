"""The console: pages for the operator of a broker, made here, without a build step."""
