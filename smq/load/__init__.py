"""The load generator: workloads, worker processes, results and their report.

run.py runs one step of a workload (workload.py) in worker processes (worker.py), which use the
clients of clients.py. results.py stores the counts, page.py renders them.
"""
