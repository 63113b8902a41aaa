"""A whole broker in one process and one thread, from one seed: see docs/simulation.md.

clock, network, disk, threads   the simulated world below the broker
host, processes                 the broker's real processes, and the state that outlives them
clients, ledger                 the broker's clients, and what it promised them
events, rules                   what happens, and what must hold: two tables
world, run                      one run; many runs, and the shrinking of one that fails
"""
