"""A creation with a key happens once, also when it is sent several times at once."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.orm import Session, sessionmaker

from app.db import idempotency as records
from app.domain.errors import IdempotencyConflict, InvalidInput
from app.domain.idempotency import RecordedAnswer
from app.domain.value import Value
from app.services.idempotency import once


class Payload(Value):
    """A body."""

    name: str = "n"


class Creation:
    """Counts how often it was done."""

    def __init__(self, refusals: int = 0) -> None:
        self.done = 0
        self.refusals = refusals

    def __call__(self) -> RecordedAnswer:
        if self.refusals:
            self.refusals -= 1
            raise InvalidInput("no")
        self.done += 1
        return RecordedAnswer(status=201, headers={"ETag": '"1"'}, body={"number": self.done})


def test_a_repetition_gets_the_recorded_answer(session: Session) -> None:
    create = Creation()
    first = once(session, "p", "k", "POST /plans", Payload(), create)
    again = once(session, "p", "k", "POST /plans", Payload(name="n"), create)
    assert (first[1], again[1], create.done) == (False, True, 1)
    assert first[0] == again[0]


def test_another_payload_or_operation_under_the_same_key_is_refused(session: Session) -> None:
    create = Creation()
    once(session, "p", "k", "POST /plans", Payload(), create)
    for operation, payload in (("POST /plans", Payload(name="other")), ("POST /models", Payload())):
        with pytest.raises(IdempotencyConflict):
            once(session, "p", "k", operation, payload, create)
    assert create.done == 1


def test_keys_of_different_callers_are_different_keys(session: Session) -> None:
    create = Creation()
    once(session, "p", "k", "POST /plans", Payload(), create)
    assert once(session, "q", "k", "POST /plans", Payload(name="other"), create)[1] is False
    assert create.done == 2


def test_a_refusal_is_not_recorded(session: Session) -> None:
    create = Creation(refusals=1)
    with pytest.raises(InvalidInput):
        once(session, "p", "k", "POST /plans", Payload(), create)
    assert once(session, "p", "k", "POST /plans", Payload(name="corrected"), create)[1] is False


def test_an_expired_key_is_as_good_as_new(session: Session) -> None:
    create = Creation()
    records.record(session, "p", "k", "another payload's", create(), timedelta(seconds=-1))
    assert once(session, "p", "k", "POST /plans", Payload(), create)[1] is False
    assert create.done == 2


@pytest.fixture
def committing(engine: Engine) -> Iterator[sessionmaker[Session]]:
    """Sessions on connections of their own that commit; what they leave is deleted."""
    yield sessionmaker(engine)
    with engine.begin() as connection:
        connection.execute(text("delete from idempotency_keys where principal = 'race'"))


@pytest.mark.parametrize("refusals", [0, 1])
def test_of_repetitions_at_once_one_creates_and_the_others_wait_for_its_answer(committing: sessionmaker[Session], refusals: int) -> None:
    create = Creation(refusals)
    barrier = threading.Barrier(6)

    def send(_: int) -> tuple[RecordedAnswer, bool] | InvalidInput:
        barrier.wait()
        try:
            with committing.begin() as session:
                return once(session, "race", f"k{refusals}", "POST /plans", Payload(), create)
        except InvalidInput as error:
            return error

    with ThreadPoolExecutor(6) as pool:
        outcomes = list(pool.map(send, range(6)))
    answered = [outcome for outcome in outcomes if not isinstance(outcome, InvalidInput)]
    assert len(answered) == 6 - refusals
    assert create.done == 1
    assert sorted(replayed for _, replayed in answered) == [False] + [True] * (5 - refusals)
    assert {answer.body["number"] for answer, _ in answered} == {1}


def test_what_was_rolled_back_was_never_recorded(committing: sessionmaker[Session]) -> None:
    create = Creation()
    with committing() as session:
        once(session, "race", "gone", "POST /plans", Payload(), create)
        session.rollback()
    with committing.begin() as session:
        assert once(session, "race", "gone", "POST /plans", Payload(), create)[1] is False
