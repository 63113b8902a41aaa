"""What every process is built from: clock, event loop, links between processes, life of a child."""
