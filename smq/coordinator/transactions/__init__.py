"""Transactions: what each transactional id's producer may do, and which markers to write.

states        the states, and which may follow which
decisions     pure functions from a request and a transactional id's state to the next state
ids           the transactional ids that are known, over the store
orders        what the coordinator has shards do: sync, write markers
endings       from EndTxn to the last marker, and the answer
waiting       requests of a next transaction, until the former one's markers are written
transactions  all of them over the store: deadlines, answers, orders to the shards
"""
