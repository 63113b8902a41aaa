"""The command `smq`: a file per verb, and the facts that verbs show."""
