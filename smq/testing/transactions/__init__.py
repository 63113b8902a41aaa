"""A workload of transactions, and what may have gone wrong in it.

history  what was tried, how it ended, and what readers saw
checker  the anomalies in a history, by Jepsen's names
copier   a program that copies between topics with transactions, and may be killed at any moment
reader   readers of committed records, of both clients
"""
