"""The composition root: command line, supervisor, process mains, the only clock."""
