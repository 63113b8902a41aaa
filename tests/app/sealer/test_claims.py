"""What a worker claims of the cores while its jobs wait."""

from smq.app.sealer.claims import Claim, Pace

LATE_MS = 60_000


def pace() -> Pace:
    return Pace(Claim.SPARE, LATE_MS)


def test_a_job_claims_more_with_each_third_of_the_time() -> None:
    waits = (0, 19_999, 20_000, 39_999, 40_000, 59_999, 60_000, 600_000)
    claims = [pace().claim(waited, waited) for waited in waits]
    assert claims[::2] == [Claim.SPARE, Claim.IDLE, Claim.LITTLE, Claim.FULL]
    assert claims[1::2] == claims[::2]


def test_a_raised_claim_stays_for_the_chores_that_follow() -> None:
    late = pace()
    assert late.claim(40_000, 100_000) is Claim.LITTLE
    assert late.claim(0, 110_000) is Claim.LITTLE
    assert late.claim(60_000, 120_000) is Claim.FULL
    assert late.claim(40_000, 179_999) is Claim.FULL
    assert late.claim(0, 180_000) is Claim.SPARE


def test_nothing_waits_while_space_is_short_or_where_nothing_may_be_late() -> None:
    short = pace()
    short.is_short = True
    assert short.claim(0, 0) is Claim.FULL
    short.is_short = False
    assert short.claim(0, 0) is Claim.SPARE
    assert Pace(Claim.SPARE, 0).claim(0, 0) is Claim.FULL


def test_reads_are_never_idle_and_never_late() -> None:
    reads = Pace(Claim.LITTLE, LATE_MS)
    assert {reads.claim(waited, waited) for waited in (0, 10 * LATE_MS)} == {Claim.LITTLE}
