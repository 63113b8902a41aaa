"""Programs that use the SDK, in a simulation.

fibers     a program's threads: one runs at a time, until it waits
system     replacements of the system modules that the SDK imports
programs   a producer, a consumer and the members of a group, with their checks
"""
