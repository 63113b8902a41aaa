"""The parts of every process: clock, event loop, links between processes, life of a child."""
