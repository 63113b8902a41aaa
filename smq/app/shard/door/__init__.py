"""Programs on this host, which hand us requests through shared memory."""
