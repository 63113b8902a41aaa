"""The results of handlers other than a response."""

from gateway.context import Ask, Relay, Wait
from smq.wire.generated.fetch import FetchResponse
from smq.wire.internal.messages import Pressure, Probe


def test_an_ask_gets_its_answers_in_the_order_of_its_questions() -> None:
    ask = Ask([Pressure(), Probe()], lambda answers: list(zip("ab", answers, strict=True)))
    assert ask.then([True, None]) == [("a", True), ("b", None)]


def test_a_response_differs_in_type_from_a_pending_result() -> None:
    assert not isinstance(FetchResponse(), (Ask, Wait, Relay))
    assert Relay() == Relay()


def test_a_wait_looks_only_at_what_has_moved_if_it_can() -> None:
    wait = Wait(lambda: [1], 500, lambda *, is_last: is_last or None, len)
    assert (wait.attempt(is_last=False), wait.attempt(is_last=True)) == (None, True)
    assert wait.look(list(wait.find_codes())) == 1
    anew = Wait(lambda: [1], 500, lambda *, is_last: "last" if is_last else "again")
    assert anew.look([1]) == "again"
