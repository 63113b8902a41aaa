"""`make demo`: the whole system on real input, told as a story of five scenes."""
