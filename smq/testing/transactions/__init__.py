"""A workload of transactions, and the check of its history.

history  the attempts, their outcomes, and the reads
checker  the anomalies in a history, by Jepsen's names
copier   a program that copies between topics with transactions, and may be killed at any moment
reader   readers of committed records, of both clients
"""
