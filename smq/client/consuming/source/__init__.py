"""Where records come from: rings in shared memory, or Fetch over the wire."""
