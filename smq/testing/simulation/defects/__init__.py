"""The known defects that `mutants.py` reintroduces, one file for each room they lie in.

A file ends in `MUTANTS`, the rows of its defects. `mutant.py` has the row's type.
"""
