"""A whole broker in one process and one thread, from one seed: see docs/simulation.md.

clock, network, disk, threads   the world below the broker, simulated
host, processes                 the broker's real processes, and the state that outlives them
clients, ledger                 programs that use it, and what they were told
events, rules                   what happens, and what must hold: two tables
world, run                      one run; many runs, and the shrinking of one that fails
"""
