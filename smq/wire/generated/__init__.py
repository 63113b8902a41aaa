"""Codecs, one module for each API. Written by smq.wire.generate."""
