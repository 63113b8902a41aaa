"""The load generator: workloads, worker processes, results and their report.

run.py puts one step of a workload (workload.py) to work in worker processes (worker.py), which
speak through clients.py; results.py keeps what they counted, page.py shows it.
"""
