"""Recorded answers: found while they are valid, by their principal only."""

from datetime import timedelta

from sqlalchemy import text
from sqlalchemy.orm import Session

from app.db import idempotency
from app.domain.idempotency import RecordedAnswer

ANSWER = RecordedAnswer(status=201, headers={"ETag": '"1"'}, body={"z": 1, "a": [1.0, None]})
HOUR = timedelta(hours=1)


def count(session: Session, principal: str) -> int:
    statement = text("select count(*) from idempotency_keys where principal = :principal")
    return int(session.execute(statement, {"principal": principal}).scalar_one())


def test_an_answer_is_found_by_principal_and_key(session: Session) -> None:
    idempotency.record(session, "one", "k", "f", ANSWER, HOUR)
    assert idempotency.find(session, "one", "k") == ("f", ANSWER)
    assert idempotency.find(session, "two", "k") is None
    assert idempotency.find(session, "one", "K") is None


def test_the_body_keeps_the_order_of_its_fields(session: Session) -> None:
    idempotency.record(session, "one", "order", "f", ANSWER, HOUR)
    found = idempotency.find(session, "one", "order")
    assert found is not None
    assert list(found[1].body) == ["z", "a"]


def test_an_expired_answer_is_not_found_and_makes_room(session: Session) -> None:
    idempotency.record(session, "one", "old", "f", ANSWER, -HOUR)
    assert idempotency.find(session, "one", "old") is None
    idempotency.record(session, "one", "old", "g", ANSWER, HOUR)
    assert idempotency.find(session, "one", "old") == ("g", ANSWER)


def test_expired_answers_are_deleted_and_valid_ones_are_not(session: Session) -> None:
    idempotency.record(session, "purge", "old", "f", ANSWER, -HOUR)
    idempotency.record(session, "purge", "new", "f", ANSWER, HOUR)
    assert count(session, "purge") == 2
    idempotency.delete_expired(session)
    assert count(session, "purge") == 1
    assert idempotency.find(session, "purge", "new") is not None
