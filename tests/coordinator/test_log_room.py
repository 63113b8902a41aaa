"""The rows of logs: of partitions that they lead, keep, and are to get."""

from uuid import UUID

from smq.coordinator.log_room import LogRoom, rows_of
from smq.model.catalog import Leadership, Moved, Topic

THERE = Leadership(1, 0, 0, 5), Leadership(3, 1, 5, None)
PLAIN = Topic("plain", UUID(int=1), (1, 2), (0, 0))
MOVED = Topic("moved", UUID(int=2), (3, 4), (1, 0), moves={0: Moved(3, 2, 2, THERE)})


def test_a_log_has_a_row_of_what_it_leads_has_led_and_is_to_get() -> None:
    assert rows_of(PLAIN) == {0: 2}
    assert rows_of(MOVED) == {0: 2, 1: 1, 2: 1}


def test_rows_take_room_and_give_it_back() -> None:
    logs = LogRoom(3, 4)
    for topic in (PLAIN, MOVED):
        logs.count(topic, +1)
    assert [logs.rows(log) for log in range(3)] == [4, 1, 1]
    assert logs.led == [3, 1, 0]
    assert [logs.room_to_lead(log) for log in range(3)] == [3, 4, 3]
    assert logs.have_room({1: 3, 2: 3})
    assert not logs.have_room({0: 1})
    logs.count(MOVED, -1)
    assert [logs.rows(log) for log in range(3)] == [2, 0, 0]
    assert logs.have_room({0: 2})
