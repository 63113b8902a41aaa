"""Turns batches into sealed segments and back; retention and sweeps."""
