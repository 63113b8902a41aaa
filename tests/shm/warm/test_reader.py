"""After warm_reader() a client's first batch compiles nothing."""

from tests.shm.warm.compiling import printed_by


def test_reading_a_log_after_warming_compiles_nothing() -> None:
    assert printed_by("-m", "tests.shm.kernels.warm_reading_life") == ""
