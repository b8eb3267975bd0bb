"""Saved profiles under a request: precedence, upgrades that take rules away, and changes at the same time."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.orm import Session, sessionmaker

from app.catalog.loader import load_bundled
from app.db import catalog as catalog_rows
from app.domain.diagnosis_profile import DiagnosisProfile, ProfileInput
from app.domain.errors import AlreadyExists, StaleVersion, UnknownName
from app.domain.metrics import Metrics
from app.domain.workload import Slo
from app.rules.loader import load_rules
from app.services import diagnosis_profiles
from app.services.diagnosis import DiagnoseRequest, diagnose
from app.services.thresholds import PROFILE_THRESHOLD_UNKNOWN, targets_of
from tests.services.test_plan_races import at_once

RULES = load_rules()
GONE = "rule_of_last_year.too_long"


def profile(**changes: object) -> DiagnosisProfile:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    fields = {"name": "chat", "owner": "platform", "version": 4, "created_at": now, "updated_at": now}
    return DiagnosisProfile.model_validate(fields | changes)


def test_without_a_profile_nothing_is_said() -> None:
    found = targets_of(None, {"objective.ttft_s": 3}, None, RULES)
    assert (found.overrides.find("objective.ttft_s"), found.slo, found.notes) == ((3, "request"), None, ())


@pytest.mark.parametrize(
    ("saved", "asked", "expected"),
    [
        ({"objective.ttft_s": 1}, {}, (1, "profile")),
        ({"objective.ttft_s": 1}, {"objective.ttft_s": 3}, (3, "request")),
        ({"objective.ttft_s": 0}, {}, (0, "profile")),
        ({"objective.ttft_s": 1}, {"objective.ttft_s": 0}, (0, "request")),
        ({"objective.tpot_s": 1}, {"objective.tpot_s": 3}, None),
    ],
    ids=["profile", "request first", "zero of the profile", "zero of the request", "neither"],
)
def test_the_request_comes_first(saved: dict[str, float], asked: dict[str, float], expected: object) -> None:
    assert targets_of(profile(thresholds=saved), asked, None, RULES).overrides.find("objective.ttft_s") == expected


def test_objectives_are_taken_as_a_whole() -> None:
    saved = profile(slo={"ttft_p95_s": 1, "tpot_p95_s": 0.1})
    assert targets_of(saved, {}, None, RULES).slo == saved.slo
    asked = Slo(ttft_p95_s=2)
    assert targets_of(saved, {}, asked, RULES).slo == asked


def test_a_threshold_that_no_rule_has_any_more_is_a_warning() -> None:
    saved = profile(thresholds={GONE: 1, "objective.ttft_s": 0.5})
    catalog = replace(load_bundled().snapshot("now"), profiles={"chat": saved})
    answer = diagnose(catalog, RULES, DiagnoseRequest(metrics=Metrics(ttft_p95_s=0.7), profile="chat"))
    (warning,) = [each for each in answer.warnings if each.code == PROFILE_THRESHOLD_UNKNOWN]
    assert GONE in warning.message
    (used,) = [each for each in answer.assumptions if each.code == "profile_used"]
    assert "version 4, gives 1 threshold" in used.message
    assert {line.threshold_from for each in answer.findings for line in each.evidence if line.name == "ttft_high.ttft_high"} == {"profile"}


def test_a_threshold_that_no_rule_has_is_not_saved(session: Session) -> None:
    new = ProfileInput(name="chat", owner="platform", thresholds={GONE: 1})
    with pytest.raises(UnknownName):
        diagnosis_profiles.create(session, RULES, new)
    assert catalog_rows.contents(session).profiles == {}


def test_what_was_saved_is_in_the_snapshot_as_it_is_read(session: Session) -> None:
    new = ProfileInput(name="chat", owner="platform", thresholds={"objective.ttft_s": 1e-300}, slo=Slo(ttft_p95_s=1.5))
    made = diagnosis_profiles.create(session, RULES, new)
    assert catalog_rows.contents(session).profiles == {"chat": made}
    assert made.thresholds == new.thresholds
    session.execute(text("""update diagnosis_profiles set entry = entry || '{"mood": 1}'"""))
    assert catalog_rows.contents(session).unreadable == ("profiles/chat",)


@pytest.fixture
def committing(engine: Engine) -> Iterator[sessionmaker[Session]]:
    """Sessions on connections of their own that commit; what they leave is deleted."""
    yield sessionmaker(engine, expire_on_commit=False)
    with engine.begin() as connection:
        connection.execute(text("delete from diagnosis_profiles where name = 'race'"))


def test_of_creations_and_changes_at_once_one_wins(committing: sessionmaker[Session]) -> None:
    def create(owner: str) -> DiagnosisProfile:
        with committing.begin() as session:
            return diagnosis_profiles.create(session, RULES, ProfileInput(name="race", owner=owner))

    made = at_once([partial(create, str(number)) for number in range(5)])
    (first,) = [each for each in made if isinstance(each, DiagnosisProfile)]
    assert sum(isinstance(each, AlreadyExists) for each in made) == 4

    def change(owner: str) -> DiagnosisProfile:
        with committing.begin() as session:
            return diagnosis_profiles.replace(session, RULES, "race", ProfileInput(name="race", owner=owner), {first.version})

    changed = at_once([partial(change, f"again {number}") for number in range(5)])
    (last,) = [each for each in changed if isinstance(each, DiagnosisProfile)]
    assert sum(isinstance(each, StaleVersion) for each in changed) == 4
    assert last.version > first.version
    with committing() as session:
        assert catalog_rows.contents(session).profiles["race"] == last
