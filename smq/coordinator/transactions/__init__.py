"""Transactions: what each transactional id's producer may do, and which markers are to be written.

states        the states, and which may follow which
decisions     what each request makes of one transactional id; pure functions
transactions  all of them over the store: deadlines, answers, and what is asked of the shards
"""
