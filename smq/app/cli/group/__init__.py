"""`smq group`: its verbs, the work behind them, and plans to move offsets."""
