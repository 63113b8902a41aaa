"""Access to a broker on this host through its shared memory."""
