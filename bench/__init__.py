"""Benchmarks: ratios against peers and physical limits, measured in one run.

There are two load generators. `smq bench` (smq/load) is for users: it drives any broker at a rate
through its clients' libraries, which cost more than the broker does. The drivers of clients/ are
for us: in C, with requests encoded beforehand, they show what the broker costs.
"""
