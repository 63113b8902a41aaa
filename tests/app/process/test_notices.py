"""Notices: a recent one is not repeated."""

import time

from smq.app.process.notices import REPEAT_MS, Lately, Notices


class FakeLog:
    def __init__(self) -> None:
        self.notices: list[str] = []


def test_a_sentence_is_said_once_and_again_after_a_while() -> None:
    said: list[str] = []
    log, other = FakeLog(), FakeLog()
    notices = Notices([log, other], said.append)
    log.notices += ["full", "full"]
    other.notices += ["damaged"]
    notices.tell(0)
    assert said == ["full", "damaged"]
    log.notices += ["full"]
    notices.tell(REPEAT_MS - 1)
    assert said == ["full", "damaged"]
    log.notices += ["full"]
    notices.tell(REPEAT_MS)
    assert said[2:] == ["full"]
    assert log.notices == other.notices == []


def test_a_notice_is_new_again_after_the_repeat_interval() -> None:
    lately = Lately()
    told = [lately.is_new("full", at) for at in (0, 0, REPEAT_MS - 1, REPEAT_MS, REPEAT_MS)]
    assert told == [True, False, False, True, False]
    assert lately.is_new("damaged", REPEAT_MS)


def test_fifty_thousand_notices_cost_the_loop_no_more_than_one_look_each() -> None:
    """Each looked through all of the last minute: half a second of a loop, with 64 lost frames."""
    lately = Lately()
    started = time.process_time()
    assert all(lately.is_new(f"frame {i}", i // 500) for i in range(50_000))
    assert time.process_time() - started < 20
