"""Programs that use the SDK, in a simulation.

fibers     a program's threads: one runs at a time, until it waits
system     what the SDK imports of the operating system, for them
programs   a producer, a consumer and the members of a group, and what is checked of them
"""
