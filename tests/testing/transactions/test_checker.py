"""The checker finds each anomaly in a history that has it, and none in one that has none."""

from smq.testing.transactions.checker import anomalies
from smq.testing.transactions.history import Attempt, Copy, Fate, History, Item, Seen, Tried

FIRST, SECOND, OTHER = Attempt(0, 0, 1), Attempt(0, 0, 2), Attempt(1, 0, 1)
READERS = ("along", "again")


def history() -> History:
    """Four items: two transactions copy them to `middle`, one copies all on to `target`."""
    items = [Item(0, number) for number in range(4)]
    made = History(sources={0: 4}, whole=["again"])
    made.tried = {
        FIRST: Tried("middle", items[:2], Fate.COMMITTED),
        SECOND: Tried("middle", items[2:], Fate.UNKNOWN),
        OTHER: Tried("target", list(items), Fate.COMMITTED),
    }
    for reader in READERS:
        for item in items:
            wrote = FIRST if item.number < 2 else SECOND
            # A marker of FIRST stands at offset 1 of each of two partitions.
            offset = item.number // 2 * 2
            made.reads[reader].append(
                Seen("middle", item.number % 2, offset, Copy(item, wrote, None))
            )
        made.reads[reader] += [
            Seen("target", 0, item.number, Copy(item, OTHER, made.reads[reader][n].copy.attempt))
            for n, item in enumerate(items)
        ]
    return made


def kinds(made: History) -> set[str]:
    return {each.kind for each in anomalies(made)}


def replaced(made: History, old: Seen, *new: Seen) -> History:
    for reads in made.reads.values():
        at = reads.index(old)
        reads[at : at + 1] = new
    return made


def test_a_good_history_has_no_anomaly() -> None:
    assert anomalies(history()) == []


def test_an_aborted_read_of_a_reader_and_of_a_transaction() -> None:
    made = history()
    made.tried[OTHER].fate = Fate.ABORTED
    assert kinds(made) == {"aborted read"}
    made = history()
    made.tried[SECOND].fate = Fate.ABORTED
    for reads in made.reads.values():
        reads[:] = [seen for seen in reads if seen.topic == "target"]
    assert "aborted read" in kinds(made), "the copy of an aborted one was committed"


def test_a_lost_write_is_one_that_others_have_overtaken() -> None:
    made = history()
    lost = made.reads["again"].pop(0)
    assert lost.copy.attempt == FIRST
    assert kinds(made) == {"lost write", "torn transaction"}


def test_an_unseen_write_is_one_with_nothing_behind_it() -> None:
    made = history()
    made.tried[SECOND].fate = Fate.COMMITTED
    made.reads["again"] = [seen for seen in made.reads["again"] if seen.copy.attempt != SECOND]
    assert "unseen" in kinds(made)
    assert "lost write" not in kinds(made)


def test_a_duplicate() -> None:
    made = history()
    old = made.reads["again"][-1]
    assert kinds(replaced(made, old, old, old._replace(offset=9))) == {"duplicate"}


def test_a_non_monotonic_poll() -> None:
    made = history()
    reads = made.reads["along"]
    reads.append(reads[-1])
    assert kinds(made) == {"non-monotonic poll"}


def test_inconsistent_offsets() -> None:
    made = history()
    last = made.reads["along"].pop()
    made.reads["along"].append(last._replace(copy=last.copy._replace(origin=FIRST)))
    assert kinds(made) == {"inconsistent offsets"}


def test_a_torn_transaction_of_which_only_a_part_is_there() -> None:
    made = history()
    made.reads["again"] = [
        seen for seen in made.reads["again"] if seen.copy.item != (0, 3) or seen.topic != "middle"
    ]
    assert kinds(made) == {"torn transaction"}, "its fate is unknown: it may be there, but whole"


def test_a_torn_transaction_whose_offsets_passed_what_it_did_not_copy() -> None:
    made = history()
    made.sources[0] = 5
    assert kinds(made) == {"torn transaction"}


def test_reordered_items() -> None:
    made = history()
    for reads in made.reads.values():
        one, two = reads[-2:]
        reads[-2:] = [one._replace(copy=two.copy), two._replace(copy=one.copy)]
    assert kinds(made) == {"reordered"}


def test_an_intermediate_read_is_a_copy_that_its_attempt_never_wrote() -> None:
    made = history()
    made.tried[OTHER].items.remove(Item(0, 3))
    assert kinds(made) == {"intermediate read"}


def test_a_circular_flow() -> None:
    made = history()
    for reads in made.reads.values():
        reads[0] = reads[0]._replace(copy=reads[0].copy._replace(origin=OTHER))
    assert kinds(made) == {"circular flow"}
