"""Transactions: what each transactional id's producer may do, and which markers to write.

states        the states, and which may follow which
decisions     pure functions from a request and a transactional id's state to the next state
transactions  all of them over the store: deadlines, answers, orders to the shards
"""
