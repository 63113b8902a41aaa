"""`smq serve`: the data directory, listeners, memory, and the processes it forks and restarts."""
