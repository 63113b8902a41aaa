"""`make demo`: the whole system on real input, in five scenes."""
