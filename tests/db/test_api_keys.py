"""API keys in the database: the secret is shown once and stored nowhere."""

from uuid import uuid4

import pytest
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from app.db import api_keys as stored
from app.domain.errors import InvalidInput, NotFound
from app.services import api_keys


def test_a_new_key_is_found_by_its_secret_and_by_no_other(session: Session) -> None:
    key, secret = api_keys.create(session, name="ci", scopes=["write", "read", "read"])
    assert api_keys.is_well_formed(secret)
    assert key.scopes == ("read", "write")
    assert key.revoked_at is None
    assert stored.find_valid(session, api_keys.digest(secret)) == key
    assert stored.find_valid(session, api_keys.digest(secret + "x")) is None


def test_the_database_holds_a_digest_and_never_the_secret(session: Session) -> None:
    _, secret = api_keys.create(session, name="ci", scopes=["read"])
    rows = session.execute(text("select row_to_json(api_keys)::text from api_keys")).scalars().all()
    assert any(api_keys.digest(secret) in row for row in rows)
    assert not any(secret.removeprefix(api_keys.PREFIX) in row for row in rows)


def test_secrets_differ_and_hold_256_bits(session: Session) -> None:
    secrets = {api_keys.create(session, name="ci", scopes=["read"])[1] for _ in range(20)}
    assert len(secrets) == 20
    assert {len(secret.removeprefix(api_keys.PREFIX)) * 6 // 8 for secret in secrets} == {32}


def test_a_revoked_key_is_not_found_and_keeps_the_time_of_its_first_revocation(session: Session) -> None:
    key, secret = api_keys.create(session, name="ci", scopes=["read"])
    revoked = api_keys.revoke(session, key.id)
    assert revoked.revoked_at is not None
    assert stored.find_valid(session, api_keys.digest(secret)) is None
    session.execute(text("update api_keys set revoked_at = revoked_at - interval '1 hour' where id = :id"), {"id": key.id})
    again = api_keys.revoke(session, key.id)
    assert again.revoked_at is not None
    assert again.revoked_at < revoked.revoked_at


def test_revoking_an_unknown_key_says_so(session: Session) -> None:
    with pytest.raises(NotFound):
        api_keys.revoke(session, uuid4())


def test_keys_are_listed_with_the_revoked_ones(session: Session) -> None:
    first, _ = api_keys.create(session, name="first", scopes=["read"])
    second, _ = api_keys.create(session, name="second", scopes=["write"])
    api_keys.revoke(session, first.id)
    listed = {key.id: key for key in stored.list_keys(session)}
    assert listed[first.id].revoked_at is not None
    assert listed[second.id] == second


@pytest.mark.parametrize("name", ["", "  ", "x" * 201, "a\nb", "a\0b"])
def test_a_key_needs_a_name_that_can_be_shown(session: Session, name: str) -> None:
    with pytest.raises(InvalidInput, match="name"):
        api_keys.create(session, name=name, scopes=["read"])


def test_a_key_needs_a_scope(session: Session) -> None:
    with pytest.raises(InvalidInput, match="scope"):
        api_keys.create(session, name="ci", scopes=[])


def test_two_keys_cannot_share_a_digest(session: Session) -> None:
    stored.insert_key(session, key_id=uuid4(), name="a", key_sha256="0" * 64, scopes=["read"])
    with pytest.raises(IntegrityError):
        stored.insert_key(session, key_id=uuid4(), name="b", key_sha256="0" * 64, scopes=["read"])
