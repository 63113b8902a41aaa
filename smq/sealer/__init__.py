"""Frames become sealed segments, sealed segments become batches again; retention."""
