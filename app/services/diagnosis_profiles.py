"""Saved diagnosis profiles: keep, find, replace, delete; within the caller's transaction, one change after another."""

from collections.abc import Collection, Sequence
from typing import NoReturn

from sqlalchemy.orm import Session

from app.db import catalog as catalog_rows
from app.db import diagnosis_profiles as stored
from app.domain.catalog import Catalog
from app.domain.diagnosis_profile import DiagnosisProfile, ProfileInput
from app.domain.errors import AlreadyExists, InvalidInput, NotFound, StaleVersion, UnknownName
from app.domain.rule import Rule
from app.services.thresholds import check_names

Expected = Collection[int] | None
"""Versions that the caller has seen and is willing to change; None for any."""


def create(session: Session, rules: Sequence[Rule], new: ProfileInput) -> DiagnosisProfile:
    """Keep a profile; raises UnknownName for a threshold that no rule has, AlreadyExists when the name is taken."""
    check_names(new.thresholds, rules)
    catalog_rows.lock(session)
    if stored.find(session, new.name) is not None:
        detail = f"there is a diagnosis profile called {new.name!r}"
        raise AlreadyExists(detail, field="/name", value=new.name, expected="a name that no profile has")
    return stored.insert_profile(session, new, catalog_rows.advance(session))


def get(session: Session, snapshot: Catalog, name: str) -> DiagnosisProfile:
    """The profile of that name, in any case; raises NotFound with the nearest names."""
    found = stored.find(session, name.strip().casefold())
    if found is None:
        try:
            snapshot.profile(name)
        except UnknownName as unknown:
            raise NotFound(unknown.detail, field="/name", value=name[:100], expected=", ".join(unknown.nearest) or None) from None
    return found or _gone(name)  # the snapshot may not have seen yet that it was deleted


def replace(session: Session, rules: Sequence[Rule], name: str, new: ProfileInput, expected: Expected) -> DiagnosisProfile:
    """Replace a profile as a whole; raises NotFound, StaleVersion, UnknownName for a threshold, InvalidInput when the name would change."""
    check_names(new.thresholds, rules)
    catalog_rows.lock(session)
    _check_changeable(session, name, expected)
    if new.name != name:
        raise InvalidInput("the name of a profile cannot be changed", field="/name", value=new.name, expected=name)
    return stored.update_profile(session, new, catalog_rows.advance(session))


def delete(session: Session, name: str, expected: Expected) -> None:
    """Remove a profile; raises NotFound or StaleVersion."""
    catalog_rows.lock(session)
    _check_changeable(session, name, expected)
    stored.delete_profile(session, name)
    catalog_rows.advance(session)


def _check_changeable(session: Session, name: str, expected: Expected) -> None:
    found = stored.find(session, name)
    if found is None:
        _gone(name)
    if expected is not None and found.version not in expected:
        detail = f"the profile {name!r} was changed since it was read: it is at version {found.version}"
        raise StaleVersion(detail, field="/name", value=name, expected=f"If-Match with the version that GET gives now, {found.version}")


def _gone(name: str) -> NoReturn:
    raise NotFound(f"no diagnosis profile is called {name[:100]!r}", field="/name", value=name[:100])
