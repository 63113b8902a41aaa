"""Checks handles: the kernel accepts those that are valid beyond doubt, and leaves all others.

    handle    as `Reference.handle` writes it (smq.model.references)
    rule      the directory of a topic's payload files, and for how long after its upload a
              new record may name one (smq.shard.references)
    payload   checked by a system call for each handle: exists, a file, of its id's length, young

Nothing is cached about payloads, so nothing goes stale when one is deleted. Rules are dropped when
the catalog changes. All other handles are left to smq.shard.references, which decides by the same
facts and writes the error messages.

    rules   int64:  the paths' address and length | struct statx | a rule for each RULE_WORDS
    paths   uint8:  PATH_BYTES for each rule: a directory, then room for an id and a NUL
"""

import numpy as np

from shm.kernels.base import libc, words
from shm.kernels.base.atomics import address, bytes_at, words_at
from shm.kernels.base.bytes import copy_bytes, get32
from shm.kernels.base.jit import kernel
from shm.kernels.record.references import GOOD_HEADER, NO_HEADER, look_at_record

AHEAD_MAX_MS = 60_000  # How far the filer's clock may be ahead of ours.

# --- a handle ------------------------------------------------------------------------------------

ID_BYTES = 54  # Four numbers in hex: time and chance, 32; "-", length, 12; "-", CRC-32C, 8.
ID_LENGTH_AT, ID_CRC_AT = 33, 46
LENGTH_DIGITS, CRC_DIGITS = 12, 8
# The id's parts end where the next begins. Otherwise a record could name a payload of another
# length or content than the one that its handle was checked for.
assert ID_LENGTH_AT + LENGTH_DIGITS + 1 == ID_CRC_AT
assert ID_CRC_AT + CRC_DIGITS == ID_BYTES
CONTENT_TYPE_BYTES_MAX = 255
DECIMALS_MAX = 15  # Digits of a length of 48 bits.
_BEFORE_ID = np.frombuffer(b'{"id":"', np.uint8)
_BEFORE_LENGTH = np.frombuffer(b'","length":', np.uint8)
_BEFORE_CRC = np.frombuffer(b',"crc32c":"', np.uint8)
_BEFORE_TYPE = np.frombuffer(b'","content_type":"', np.uint8)
_BEHIND_TYPE = np.frombuffer(b'"}', np.uint8)
_QUOTE, _BACKSLASH, _DASH, _SPACE, _TILDE = b'"\\- ~'
_ZERO, _NINE, _A, _F = b"09af"
HANDLE_BYTES_MIN = ID_BYTES + CRC_DIGITS + 2
HANDLE_BYTES_MIN += sum(map(len, (_BEFORE_ID, _BEFORE_LENGTH, _BEFORE_CRC, _BEFORE_TYPE)))


@kernel
def _stands(data, at, end, text):
    """The place behind these bytes in data[at:end], or -1: it does not begin with them."""
    if at < 0 or text.size > end - at:
        return np.int64(-1)
    for i in range(text.size):
        if data[at + i] != text[i]:
            return np.int64(-1)
    return at + text.size


@kernel
def _hex(data, at, count):
    """The number that `count` hex digits spell, or -1: not all are digits in our form."""
    number = np.int64(0)
    for i in range(at, at + count):
        digit = np.int64(data[i])
        if _ZERO <= digit <= _NINE:
            digit -= _ZERO
        elif _A <= digit <= _F:
            digit -= _A - 10
        else:
            return np.int64(-1)
        number = number << 4 | digit
    return number


@kernel
def _decimal(data, at, end):
    """The number at data[at:end] and its end; an end of -1: there is none."""
    number, start = np.int64(0), at
    while 0 <= at < end and at - start < DECIMALS_MAX and _ZERO <= data[at] <= _NINE:
        number = 10 * number + data[at] - _ZERO
        at += 1
    if at <= start or (data[start] == _ZERO and at > start + 1):
        return number, np.int64(-1)
    return number, at


@kernel
def _length_in_id(data, at):
    """The length in the id at data[at], or -1: it is no id."""
    is_id = data[at + ID_LENGTH_AT - 1] == _DASH and data[at + ID_CRC_AT - 1] == _DASH
    for half in range(0, ID_LENGTH_AT - 1, 8):
        is_id &= _hex(data, at + half, 8) >= 0
    is_id &= _hex(data, at + ID_CRC_AT, CRC_DIGITS) >= 0
    return _hex(data, at + ID_LENGTH_AT, LENGTH_DIGITS) if is_id else np.int64(-1)


@kernel
def _is_type(data, at, end):
    """Whether data[at:end] is a content type that needs no JSON escapes."""
    is_one = 0 < end - at <= CONTENT_TYPE_BYTES_MAX
    for i in range(at, end):
        is_plain = _SPACE <= data[i] <= _TILDE
        is_one &= is_plain and data[i] != _QUOTE and data[i] != _BACKSLASH
    return is_one


@kernel
def read_handle(data, at, length):
    """The start of a handle's id, and the payload's length, if the handle agrees with its id. (-1,
    -1): the value is no handle, or not in the form of `Reference.handle`.
    """
    none, end = (np.int64(-1), np.int64(-1)), at + length
    if length < HANDLE_BYTES_MIN:
        return none
    id_at = _stands(data, at, end, _BEFORE_ID)
    size = _length_in_id(data, id_at) if id_at >= 0 else np.int64(-1)
    if size < 0:
        return none
    said, at = _decimal(data, _stands(data, id_at + ID_BYTES, end, _BEFORE_LENGTH), end)
    crc_at = _stands(data, at, end, _BEFORE_CRC)
    if said != size or crc_at < 0 or end - crc_at < CRC_DIGITS:
        return none
    for i in range(CRC_DIGITS):
        if data[crc_at + i] != data[id_at + ID_CRC_AT + i]:
            return none
    type_at = _stands(data, crc_at + CRC_DIGITS, end, _BEFORE_TYPE)
    type_end = end - _BEHIND_TYPE.size
    if type_at < 0 or _stands(data, type_end, end, _BEHIND_TYPE) != end:
        return none
    return (id_at, size) if _is_type(data, type_at, type_end) else none


# --- rules ---------------------------------------------------------------------------------------

RULES_MAX = 256  # Partitions that get handles now; of two with one place, the later takes it.
RULE_CODE, RULE_ORPHAN_MS, RULE_PATH_BYTES = range(3)  # The code and 1: 0 is none.
RULE_WORDS = 3
PATH_BYTES = 1024
PATHS_AT = 0
FOUND_AT = 2  # A struct statx, which is the same on all machines of 64 bits.
FOUND_WORDS = 32
STATX_BYTES = 256  # What the system writes (statx(2)); what is beyond, it would write into a rule.
assert 8 * FOUND_WORDS >= STATX_BYTES
RULES_AT = FOUND_AT + FOUND_WORDS
FOUND_MASK, FOUND_MODE, FOUND_BYTES, FOUND_SECONDS, FOUND_NS = 0, 3, 5, 14, 15
MODE_SHIFT, TYPE_MASK, REGULAR = 32, 0o170000, 0o100000
AT_FDCWD, STATX_TYPE, STATX_MTIME, STATX_SIZE = -100, 0x1, 0x40, 0x200
STATX_WANTED = STATX_TYPE | STATX_MTIME | STATX_SIZE


def new_rules() -> tuple[np.ndarray, np.ndarray]:
    """No rules, and their paths. A plan names them in HEAD_RULES as long as both are kept."""
    rules = np.zeros(RULES_AT + RULES_MAX * RULE_WORDS, np.int64)
    paths = np.zeros(RULES_MAX * PATH_BYTES, np.uint8)
    rules[PATHS_AT : PATHS_AT + 2] = paths.ctypes.data, len(paths)
    return rules, paths


def add_rule(
    rules: np.ndarray, paths: np.ndarray, code: int, directory: bytes, orphan_ms: int
) -> None:
    """Add a rule: a partition's payloads are files in `directory`, which ends with a slash."""
    if len(directory) + ID_BYTES + 1 > PATH_BYTES or b"\0" in directory:
        return
    place = code % RULES_MAX
    rules[RULES_AT + RULE_WORDS * place :][:RULE_WORDS] = code + 1, orphan_ms, len(directory)
    paths[PATH_BYTES * place :][: len(directory)] = np.frombuffer(directory, np.uint8)


def forget_rules(rules: np.ndarray) -> None:
    """Remove all rules."""
    rules[RULES_AT:] = 0


@kernel
def _is_there(rules, place, data, id_at, size, wall_ms):
    """Whether a payload is a file of its id's length that a new record may still name."""
    paths, rule = bytes_at(rules, PATHS_AT), RULES_AT + RULE_WORDS * place
    path, name = PATH_BYTES * place, PATH_BYTES * place + rules[rule + RULE_PATH_BYTES]
    copy_bytes(paths, name, data, id_at, ID_BYTES)
    paths[name + ID_BYTES] = 0
    where, found = address(paths, path), address(rules, FOUND_AT)
    if libc.statx(np.int32(AT_FDCWD), where, np.int32(0), np.uint32(STATX_WANTED), found) != 0:
        return False
    is_told = rules[FOUND_AT + FOUND_MASK] & STATX_WANTED == STATX_WANTED
    is_file = rules[FOUND_AT + FOUND_MODE] >> MODE_SHIFT & TYPE_MASK == REGULAR
    seconds, rest_ns = rules[FOUND_AT + FOUND_SECONDS], rules[FOUND_AT + FOUND_NS] & 0xFFFFFFFF
    age_ms = wall_ms - seconds * 1000 - rest_ns // 1_000_000
    is_young = -AHEAD_MAX_MS <= age_ms < rules[rule + RULE_ORPHAN_MS]
    return is_told and is_file and rules[FOUND_AT + FOUND_BYTES] == size and is_young


@kernel
def handles_are_good(plan, row, data, size):
    """Whether the batch of a plan's row, uncompressed, of `size` bytes, has only good handles.

    False: leave the decision to the caller.
    """
    if plan[words.HEAD_RULES] == 0:
        return False
    rules, place = words_at(plan, words.HEAD_RULES), plan[row + words.ROW_CODE] % RULES_MAX
    if rules[RULES_AT + RULE_WORDS * place + RULE_CODE] != plan[row + words.ROW_CODE] + 1:
        return False
    at, end = plan[row + words.ROW_AT] + words.BATCH_HEADER_BYTES, plan[row + words.ROW_AT] + size
    for _ in range(get32(data, plan[row + words.ROW_AT] + words.BATCH_RECORD_COUNT_AT)):
        said, value_at, length, at = look_at_record(data, at, end)
        if at < 0:
            return False
        if said == NO_HEADER:
            continue
        id_at, payload_bytes = read_handle(data, value_at, length)
        if said != GOOD_HEADER or id_at < 0:
            return False
        if not _is_there(rules, place, data, id_at, payload_bytes, plan[words.HEAD_WALL_MS]):
            return False
    return at == end
