import threading

from smq.app.process.lane import ThreadLane
from tests.app.fake_peers import TidyLoop, turn_until


def test_work_is_done_in_one_other_thread_and_reported_in_the_loop() -> None:
    loop = TidyLoop()
    lane = ThreadLane(loop, "test")
    done: list[tuple[object, int]] = []
    for _ in range(3):
        lane.submit(threading.get_ident, lambda told: done.append((told, threading.get_ident())))
    turn_until(loop, lambda: len(done) == 3)
    workers, here = {told for told, _ in done}, {reported for _, reported in done}
    assert here == {threading.get_ident()}
    assert len(workers) == 1
    assert workers != here
    loop.close()


def test_a_lane_has_no_thread_before_there_is_work() -> None:
    before = threading.active_count()
    loop = TidyLoop()
    ThreadLane(loop, "test")
    assert threading.active_count() == before
    loop.close()
