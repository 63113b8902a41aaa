"""The command `smq`: a file for each verb, and the facts that they show."""
