"""What our own processes tell each other, over unix sockets. No IO.

frames     length, id and kind around a body
form       questions and answers as JSON, checked against their types
messages   the table: each question with its fields and the type of its answer
"""
