"""What an answer must hold: a broker may be anything that listens at an address.

The codecs give what the bytes say, and no more. Who asked about one topic checks here that the
answer is about one, and that a number is a number: else PeerError, and the caller knows that it
has to give up on this broker.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from smq.model.errors import PeerError

Item = TypeVar("Item")


def only(items: Sequence[Item], what: str) -> Item:
    """The one item of an answer to a question about one. Raises PeerError."""
    if len(items) != 1:
        raise PeerError(f"it was asked about one {what}, and answers about {len(items)}")
    return items[0]


def check_partitions(asked: Iterable[Item], answered: Iterable[Item]) -> None:
    """Check that an answer is about the partitions of the question, each once. Raises PeerError."""
    if Counter(iter(asked)) != Counter(iter(answered)):
        raise PeerError("it answers about other partitions than it was asked about")


def number_of(settings: Mapping[str, str | None], name: str, default: int) -> int:
    """A setting that is a whole number, as a broker says it. Raises PeerError."""
    said = settings.get(name)
    if not said:
        return default
    try:
        return int(said)
    except ValueError:  # Also where it has thousands of digits.
        raise PeerError(f"it says that {name} is {said[:80]!r}, which is no number") from None
