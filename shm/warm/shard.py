"""Compiles, or loads from the cache, every kernel a shard calls: by a tiny life of a log.

The supervisor does this before it forks, so that no process compiles, and none waits for it. A
kernel that a test finds compiled later belongs here.
"""

import os
import struct

import numpy as np

from shm.kernels.base.crc32c import crc32c, crc32c_update
from shm.kernels.base.crc_sums import new_sums
from shm.kernels.base.entries import LINK_COLUMNS
from shm.kernels.base.frames import (
    batch_crc_is_good,
    frame_bytes,
    frame_is_good,
    frame_is_good_by_sums,
    frame_is_made_up,
    write_frame_header,
)
from shm.kernels.base.publish import read_version, write_version
from shm.kernels.base.words import (
    FRAME_HEADER_BYTES,
    HEAD_END,
    HEAD_REQUEST_BYTES_MAX,
    HEAD_START,
    P_LAST_ENTRY,
    WORD_GENERATION,
)
from shm.kernels.log.append import append_adoption, append_marker, append_rows, pad_to
from shm.kernels.log.directory import enter_topics, hash_key
from shm.kernels.log.index import find_entry, find_timestamp, first_entry
from shm.kernels.log.plan import new_plan, request_at, row_at, topic_at
from shm.kernels.log.producers import (
    clip_producers,
    expire_producers,
    fence_producer,
    file_producers,
    forget_partitions,
    producer_row,
    restore_producers,
)
from shm.kernels.log.recover import (
    SCAN_COLUMNS,
    find_frame,
    header_generation,
    replay_frames,
    scan_frames,
)
from shm.kernels.log.spans import choose_batches, gather, gather_checked
from shm.kernels.log.sync import BOX_WORDS, post_sync, stop_sync, sync_loop
from shm.kernels.log.visible import publish
from shm.kernels.record.last_of_key import SLOT_WORDS, find_last, note_keys
from shm.kernels.record.partition import assign_partitions, choose_partition
from shm.kernels.record.record_checks import LIMIT_WORDS, check_records, new_refused
from shm.kernels.record.record_times import find_record_time, new_search
from shm.kernels.record.records import (
    count_utf8,
    fill_headers,
    new_columns,
    new_facts,
    new_headers,
    scan_batches,
    walk_batches,
)
from shm.kernels.record.records_encode import (
    RecordRows,
    Run,
    ValueRows,
    are_offsets,
    encode_batch,
    encode_one,
    encode_values,
)
from shm.kernels.record.references import (
    R_FIELDS,
    count_plain,
    find_handles,
    find_key,
    may_refer,
)
from shm.kernels.record.views import VIEW_BYTES, fill_views
from shm.kernels.request.fetch import STATE_WORDS, answer_fetch
from shm.kernels.request.produce import (
    answer_bytes_max,
    count_errors,
    parse_requests,
    produce,
    write_answers,
)
from shm.kernels.session.shard import (
    fall_asleep,
    must_ring,
    put_answers,
    spin_for_requests,
    take_requests,
    tell_event,
)
from shm.kernels.turn.held import new_held
from shm.kernels.turn.parked import PARKED_COUNT, new_parked, unpark
from shm.kernels.turn.sessions import new_sessions
from shm.kernels.turn.spin import may_spin, new_spin, note_spin
from shm.kernels.turn.turns import take_turns
from shm.kernels.turn.words import EPOLL, TURN_WORDS
from shm.producer_table import new_producers
from shm.segment import LogMemory
from shm.session import SessionMemory

_BATCH = struct.Struct(">qiibIhiqqqhii")


def warm() -> None:
    """Have every kernel ready. Compiling takes seconds, loading a tenth of one."""
    warm_turns()
    warm_rest()


def warm_turns() -> None:
    """Have the kernel ready that takes turns, and all it calls: half of the work."""
    log, links, producers = _a_log()
    _warm_turns(log, links, producers)


def warm_rest() -> None:
    """Have the other half ready."""
    log, links, producers = _a_log()
    _warm_recovery(log, links, producers)
    _warm_sync(log)
    _warm_read(log, links, np.zeros((1, 2), np.int64))
    _warm_records()
    _warm_session()


def _a_log() -> tuple[LogMemory, np.ndarray, np.ndarray]:
    """A small log: memory, links, producers."""
    log = LogMemory.in_process(0, 1 << 16, 1 << 15, 4)
    log.partitions[0, P_LAST_ENTRY] = -1
    links = np.full((LINK_COLUMNS, log.layout.index_capacity), -1, np.int64)
    return log, links, new_producers(16, bytes(16))


def _a_frame(log: LogMemory) -> np.ndarray:
    """Bytes of one frame, as a plain append would leave them; its checks are not right."""
    batch = _BATCH.pack(0, 49, 0, 2, 0, 0, 0, 0, 0, -1, -1, -1, 1)
    frame = np.zeros(128, np.uint8)
    frame[FRAME_HEADER_BYTES : FRAME_HEADER_BYTES + len(batch)] = np.frombuffer(batch, np.uint8)
    assert log.words[WORD_GENERATION] == 0
    return frame


def _warm_turns(log: LogMemory, links: np.ndarray, producers: np.ndarray) -> None:
    plan, out = new_plan(1, 1, 1), np.zeros(256, np.uint8)
    directory = np.zeros(8, np.int64)
    data = np.zeros(64, np.uint8)
    plan[HEAD_START], plan[HEAD_END], plan[HEAD_REQUEST_BYTES_MAX] = 0, 3, 64
    produce(data, log.memory, links, producers, directory, plan, out)
    parse_requests(data, directory, plan)
    append_rows(log.memory, links, producers, data, plan)
    write_answers(data, plan, out)
    answer_bytes_max(plan)
    count_errors(plan)
    request_at(0), topic_at(plan, 0), row_at(plan, 0)
    turn, events = np.zeros(TURN_WORDS, np.int64), np.zeros(8, np.int32)
    turn[EPOLL] = -1  # No descriptor: nothing is ready.
    state, parked = np.zeros(STATE_WORDS, np.int64), new_parked(1)
    take_turns(
        turn, events, np.zeros(1, np.int64), data, (log.memory, links, producers, directory),
        (plan, out), (state, out), parked, new_sessions(1), np.zeros(3, np.int64),
        np.zeros(1, np.int64), np.zeros(1, np.int32), new_spin(), np.zeros(1, np.int64), new_held(),
    )  # fmt: skip
    note_spin(new_spin(), may_spin(new_spin()))
    parked[0][PARKED_COUNT] = 1
    unpark(parked, 0)
    publish(log.memory, links, np.zeros(3, np.int64), 1, 0, np.zeros(1, np.int64))
    is_last = True
    answer_fetch(data, 0, is_last, log.memory, links, directory, state, out)


def _warm_read(log: LogMemory, links: np.ndarray, spans: np.ndarray) -> None:
    frame, out = _a_frame(log), np.zeros(64, np.uint8)
    choose_batches(log.memory, links, 0, 0, 0, 0, spans)
    find_timestamp(log.memory, links, 0, find_entry(log.memory, links, 0, 0), 0, 0)
    first_entry(log.memory, links, 0)
    gather(log.ring, spans, 0, out)
    count_plain(log.ring, spans[:0])
    gather_checked(frame, 0, spans, out, 0)
    frame_is_good(frame, 0, len(frame), 0)
    frame_is_made_up(frame, 0, len(frame), 0)
    write_frame_header(frame, 0, 0, (0, 0), frame_bytes(0), 0, 0, 0)
    batch_crc_is_good(frame, FRAME_HEADER_BYTES, 61)
    directory = np.array([2, 8, 8, 8, 0, 0, 0, 0], np.int64)
    for data in (frame, np.frombuffer(bytes(8), np.uint8)):  # Writable and read-only.
        crc32c(data, 0, 8)
        crc32c_update(data, 0, 8, 0)
        find_key(data, 0, 8)
        may_refer(data, 0, 8)
        find_handles(data, 0, 8, np.zeros((1, R_FIELDS), np.int64))
        hash_key(directory, data, 0, 8, False)  # noqa: FBT003  (kernels take no keywords)
        enter_topics(directory, data, 0, 0)


def _warm_recovery(log: LogMemory, links: np.ndarray, producers: np.ndarray) -> None:
    rows = np.zeros((1, SCAN_COLUMNS), np.int64)
    frame = _a_frame(log)
    sums = new_sums(len(frame))
    frame_is_good_by_sums(frame, 0, len(frame), 0, sums)
    scan_frames(frame, 0, len(frame), 0, 0, rows, sums)
    find_frame(frame, 0, len(frame), 0, 0, sums)
    header_generation(frame, 0)
    place = np.zeros(5, np.int64)
    replay_frames(log.memory, links, producers, frame, rows, np.zeros(1, np.int64), place)
    pad_to(log.memory, 1 << 15)
    numbers, none = np.zeros(1, np.int64), producers[1:1]
    clip_producers(producers, numbers, numbers)
    expire_producers(producers, 0, 0)
    forget_partitions(producers, 1, 1, numbers)
    file_producers(none, numbers, numbers, none)
    restore_producers(producers, none)
    producer_row(producers, 0, 0)
    fence_producer(producers, 0, 0, 0, 0, 0)
    append_marker(log.memory, links, 0, np.zeros(78, np.uint8), 0, 0)
    append_adoption(log.memory, 0, np.zeros(80, np.uint8))
    words = np.zeros(8, np.int64)
    write_version(words, int(read_version(words)) + 1)


def _warm_sync(log: LogMemory) -> None:
    box = np.zeros(BOX_WORDS, np.int64)
    stop_sync(box)
    sync_loop(log.memory, box)
    post_sync(box, 0, 0)


def _warm_records() -> None:
    data, out = np.frombuffer(bytes(64), np.uint8), np.zeros(64, np.uint8)
    facts, columns, headers = new_facts(0), new_columns(1), new_headers(1)
    for each in (facts, columns, headers):
        each[:] = 0
    scan_batches(data, 0, 0, facts)
    find_record_time(np.frombuffer(bytes(8), np.uint8), new_search(1), (0, 0, 0), (0, 0, 0))
    walk_batches(data, facts, 0, 0, columns)
    check_records(data, facts, np.zeros(LIMIT_WORDS, np.int64), columns, new_refused(1))
    fill_headers(data, columns, headers)
    count_utf8(data, headers[0], headers[1])
    encode_batch(
        RecordRows(columns, headers, data, data, data, data), 0, Run(1, 1, 0, 0), 64, out, 0
    )
    offsets = np.frombuffer(bytes(8), np.int32)
    are_offsets(offsets, 0)
    encode_values(ValueRows(data, offsets, 0), 0, Run(1, 1, 0, 0), 64, out, 0)
    encode_one(data, 1, data, 1, data, 0, 0, 0, 0, 0, np.zeros(256, np.uint8), 0)
    choose_partition(data, 0, 0, 1, 0)
    assign_partitions(columns, data, 1, 0, np.zeros(1, np.int64))
    table, secret = np.zeros((2, SLOT_WORDS), np.uint64), np.frombuffer(bytes(16), np.uint64)
    keys = data, columns[0], columns[0], np.frombuffer(bytes(8), np.int64)
    note_keys(table, secret, *keys)
    find_last(table, secret, *keys, np.zeros(1, np.bool_))
    fill_views(data, columns[0], columns[1], np.zeros(VIEW_BYTES, np.uint8), np.zeros(1, np.uint8))


def _warm_session() -> None:
    session = SessionMemory.create(4096, 4096)
    os.close(session.fd)
    memory, side = session.memory, session.side
    take_requests(memory, side, np.zeros(8, np.uint8))
    spin_for_requests(memory, side, 1)
    fall_asleep(memory, side)
    put_answers(memory, side, np.frombuffer(b"x", np.uint8))
    must_ring(memory, side)
    tell_event(memory, side)
    session.watch_has_changed()
