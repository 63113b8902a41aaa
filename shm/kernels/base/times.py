"""Histograms of times: see TIME_BUCKETS in shm.kernels.base.words."""

from shm.kernels.base import words
from shm.kernels.base.jit import kernel


@kernel
def bucket_of(took_ns):
    """The bucket that counts a time."""
    bucket, left_us = 0, took_ns // 1000
    while left_us > 0 and bucket < words.TIME_BUCKETS - 1:
        bucket, left_us = bucket + 1, left_us >> 1
    return bucket
