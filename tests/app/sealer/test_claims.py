"""What a worker claims of the cores while its jobs wait."""

from smq.app.sealer.claims import Claim, Pace

LATE_MS = 60_000


def pace() -> Pace:
    return Pace(Claim.IDLE, LATE_MS)


def test_a_job_waits_for_idle_cores_then_gets_a_little_then_as_much_as_others() -> None:
    claims = [pace().claim(waited, waited) for waited in (0, 39_999, 40_000, 59_999, 60_000)]
    assert claims == [Claim.IDLE, Claim.IDLE, Claim.LITTLE, Claim.LITTLE, Claim.FULL]


def test_a_raised_claim_stays_for_the_chores_that_follow() -> None:
    late = pace()
    assert late.claim(40_000, 100_000) is Claim.LITTLE
    assert late.claim(0, 110_000) is Claim.LITTLE
    assert late.claim(60_000, 120_000) is Claim.FULL
    assert late.claim(40_000, 179_999) is Claim.FULL
    assert late.claim(0, 180_000) is Claim.IDLE


def test_nothing_waits_while_space_is_short_or_where_nothing_may_be_late() -> None:
    short = pace()
    short.is_short = True
    assert short.claim(0, 0) is Claim.FULL
    short.is_short = False
    assert short.claim(0, 0) is Claim.IDLE
    assert Pace(Claim.IDLE, 0).claim(0, 0) is Claim.FULL


def test_reads_are_never_idle_and_never_late() -> None:
    reads = Pace(Claim.LITTLE, LATE_MS)
    assert {reads.claim(waited, waited) for waited in (0, 10 * LATE_MS)} == {Claim.LITTLE}
