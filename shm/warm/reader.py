"""Compiles, or loads from the cache, the kernels of ring readers (see `shm.warm.shard`).

Only clients need these, not the broker. Without this, the first batch on a machine is some seconds
late.
"""

import os

import numpy as np

from shm.catalog import CatalogBlock
from shm.kernels.reader.cut import cut_batches, records_announced, run_of
from shm.kernels.reader.glance import acquire_word
from shm.kernels.reader.lend import (
    CURSOR_BOUND,
    CURSOR_WORDS,
    F_FIELDS,
    READ_UNCOMMITTED,
    W_FIELDS,
    first_whole_entry,
    has_from,
    lend_batches,
    oldest_entry,
    oldest_position,
    place_rows,
)
from shm.kernels.reader.lend_few import lend_few, new_few
from shm.kernels.reader.messages import headers_bytes, write_headers, write_messages
from shm.kernels.reader.protobuf import end_of_some, last_field, last_named, walk_message
from shm.kernels.reader.sleep import BELLS_MAX, POLLED_WORDS, ReaderState, sleep_reader
from shm.kernels.record.records import (
    count_utf8,
    fill_headers,
    new_columns,
    new_headers,
    scan_batches,
)
from shm.kernels.record.views import VIEW_BYTES, fill_views
from shm.segment import LogMemory
from shm.session import SessionMemory


def warm_reader() -> None:
    """Have every kernel of a reader ready."""
    log = LogMemory.in_process(0, 1 << 16, 1 << 15, 4)
    for each in (log.memory, log.ring):
        each.flags.writeable = False  # As it is where it was attached.
    wanted, cursor = np.zeros((W_FIELDS, 1), np.int64), np.zeros(CURSOR_WORDS, np.int64)
    facts = np.zeros((F_FIELDS, 1), np.int64)
    cursor[CURSOR_BOUND] = READ_UNCOMMITTED
    place_rows(log.memory, wanted, cursor)
    lend_batches(log.memory, wanted, cursor, facts, 1)
    lend_few(log.memory, log.ring, wanted, cursor, *new_few(), 1)
    acquire_word(log.memory, 0)
    has_from(log.memory, 0)
    first_whole_entry(log.memory, 0, 0)
    oldest_entry(log.memory)
    oldest_position(log.memory)
    run_of(facts, 0)
    records_announced(facts)
    columns, headers = new_columns(1), new_headers(1)
    columns[:] = headers[:] = 0
    cut_batches(log.ring, facts, 0, 0, columns, np.zeros(1, np.int64))
    scan_batches(log.ring, 0, 0, facts)
    fill_headers(log.ring, columns, headers)
    count_utf8(log.ring, headers[0], headers[1])
    write_messages(log.ring, columns, 0, 1, np.zeros(64, np.uint8))
    headers_bytes(log.ring, 0, 0)
    write_headers(log.ring, 0, 0, np.zeros(64, np.uint8))
    empty = log.ring[:0]
    walk_message(empty, np.zeros((1, 16), np.int64), np.zeros((2, 1), np.int64))
    last_field(empty, 0, 0, 0)
    last_named(empty, 0, empty, np.zeros(1, np.int64), np.zeros((2, 0), np.int64))
    end_of_some(empty, 0, 0, 0)
    views, bits = np.zeros(VIEW_BYTES, np.uint8), np.zeros(1, np.uint8)
    fill_views(log.ring, columns[0], columns[1], views, bits)
    _warm_sleep(ReaderState(log.memory, wanted, cursor, facts))


def _warm_sleep(reader: ReaderState) -> None:
    session, catalog = SessionMemory.create(4096, 4096), CatalogBlock.create(4096)
    polled, bells = np.full(POLLED_WORDS, -1, np.int32), np.zeros(BELLS_MAX, np.uint8)
    seen = CatalogBlock.attach(catalog.fd).words, 0
    sleep_reader(session.memory, session.side, polled, bells, *reader, *seen, 0)
    os.close(session.fd)
    os.close(catalog.fd)
