"""The composition root: supervisor, process mains, the only clock."""
