"""Text from elsewhere, safe to print: it moves no cursor, hides nothing and begins no line.

Names of groups, clients and headers may hold anything. A line feed in one would forge a line of the
log, an escape sequence would act on the operator's terminal, a bidirectional mark (U+202E) would
show another order than there is.
"""

import sys

BMP_END = 0x10000


def printable(text: str, keep: str = "") -> str:
    r"""The text with its unprintable characters as \uHHHH, but for those of `keep`.

    JSON stays the same JSON: that is its own way to write them.
    """
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() or each in keep else _escaped(each) for each in text)


def _escaped(character: str) -> str:
    code = ord(character)
    if code < BMP_END:
        return f"\\u{code:04x}"
    high, low = divmod(code - BMP_END, 0x400)
    return f"\\u{0xD800 + high:04x}\\u{0xDC00 + low:04x}"


def say_error(sentence: str) -> None:
    """Write a line to stderr: the one writer there."""
    sys.stderr.write(printable(sentence) + "\n")
