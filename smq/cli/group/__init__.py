"""`smq group`: its verbs, their work, and plans to move offsets."""
