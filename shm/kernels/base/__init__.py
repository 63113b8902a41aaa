"""What all kernels use: how they are compiled, bytes, words, atomics, CRC, frames."""
