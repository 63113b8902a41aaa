"""The parts of docs/ that are written from the code; `make docs` writes them."""
