"""The table of states is what Kafka's TransactionState says."""

from smq.coordinator.transactions.states import COMPLETE, DECIDED, NEXT, TransactionState

S = TransactionState


def test_every_state_says_what_follows_it() -> None:
    assert set(NEXT) == set(S)


def test_a_decision_is_never_taken_back() -> None:
    assert NEXT[S.PREPARE_COMMIT] == {S.COMPLETE_COMMIT}
    assert NEXT[S.PREPARE_ABORT] == {S.COMPLETE_ABORT}
    assert not NEXT[S.DEAD]


def test_only_what_is_open_is_committed() -> None:
    assert [state for state in S if S.PREPARE_COMMIT in NEXT[state]] == [S.ONGOING]


def test_an_open_or_decided_transaction_is_never_forgotten() -> None:
    forgotten = {state for state in S if S.DEAD in NEXT[state]}
    assert forgotten == {S.EMPTY} | COMPLETE
    assert not forgotten & DECIDED
