"""What is stored of a plan comes back as it was, and only what was asked for."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import text
from sqlalchemy.exc import NoResultFound
from sqlalchemy.orm import Session

from app.db import plans
from app.domain.plan import Plan, PlanContents, PlanFilter, PlanHead
from app.domain.provenance import Versions

NOBODY = PlanFilter(owner=None, labels=(), model=None, gpu=None, kind=None)


def contents(**changes: Any) -> PlanContents:
    fields: dict[str, Any] = {
        "kind": "kv",
        "name": "KV",
        "owner": "platform",
        "labels": ("prod",),
        "notes": "two\nlines",
        "model": "llama-3.1-70b",
        "gpu": None,
        "request": {"model": "llama-3.1-70b"},
        "inputs": {"model": "llama-3.1-70b", "tp": 1},
        "answer": {"summary": "320 KiB a token", "bytes_per_token": 327680},
        "versions": Versions(planner="0.1.0", catalog="c-1"),
    }
    return PlanContents(**(fields | changes))


def stored(session: Session, **changes: Any) -> Plan:
    return plans.insert_plan(session, uuid4(), contents(**changes))


def found(session: Session, plan_id: UUID, revision: int | None = None) -> Plan:
    plan = plans.find(session, plan_id, revision)
    assert plan is not None
    return plan


def test_a_plan_comes_back_as_it_was_stored(session: Session) -> None:
    plan = stored(session)
    assert found(session, plan.id) == plan
    assert (plan.revision, plan.summary, plan.created_at) == (1, "320 KiB a token", plan.updated_at)
    assert {name: getattr(plan, name) for name in PlanContents.model_fields} == dict(contents())


def test_an_answer_keeps_the_order_of_its_fields_and_its_numbers(session: Session) -> None:
    answer = {"summary": "s", "zeta": 1.0, "alpha": 1e23, "b": 10**25, "a": {"y": 5e-324, "x": -0.0}, "text": "é\u2028 \\u0041 \ud7ff"}
    read = found(session, stored(session, answer=answer).id).answer
    assert repr(read) == repr(answer)


def test_a_revision_leaves_the_earlier_ones_as_they_were(session: Session) -> None:
    first = stored(session)
    assert plans.lock(session, first.id) == plans.Locked("kv", 1)
    second = plans.insert_revision(session, first.id, 2, contents(name="KV, changed", labels=(), gpu="h100-sxm-80gb"))
    assert found(session, first.id) == second
    assert found(session, first.id, 1) == first
    assert (second.revision, second.name, second.gpu, second.created_at) == (2, "KV, changed", "h100-sxm-80gb", first.created_at)
    assert plans.find(session, first.id, 3) is None
    assert plans.list_revisions(session, first.id, None, 10) == [head(second), head(first)]
    assert plans.list_revisions(session, first.id, 2, 10) == [head(first)]
    assert plans.list_revisions(session, first.id, None, 1) == [head(second)]


def head(plan: Plan) -> PlanHead:
    return PlanHead(**{name: getattr(plan, name) for name in PlanHead.model_fields})


def test_a_deleted_plan_is_found_nowhere_and_its_rows_stay(session: Session) -> None:
    plan = stored(session, owner="deleter")
    plans.mark_deleted(session, plan.id)
    assert plans.find(session, plan.id, None) is None
    assert plans.find(session, plan.id, 1) is None
    assert plans.lock(session, plan.id) is None
    assert plans.list_revisions(session, plan.id, None, 10) == []
    assert plans.list_plans(session, NOBODY.model_copy(update={"owner": "deleter"}), None, 10) == []
    assert session.execute(text("select count(*) from plan_revisions where plan_id = :id"), {"id": plan.id}).scalar_one() == 1


@pytest.fixture
def shelf(session: Session) -> dict[str, UUID]:
    """Plans that differ in one thing each."""
    same: dict[str, Any] = {"owner": "shelf", "labels": ("a", "b"), "model": "m", "gpu": "g"}
    changes: dict[str, dict[str, Any]] = {
        "plain": {},
        "owner": {"owner": "Shelf"},
        "label": {"labels": ("a",)},
        "model": {"model": "n"},
        "gpu": {"gpu": None},
        "kind": {"kind": "memory"},
    }
    return {name: stored(session, **{**same, "name": name, **change}).id for name, change in changes.items()}


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        ({"owner": "shelf"}, {"plain", "label", "model", "gpu", "kind"}),
        ({"owner": "Shelf"}, {"owner"}),
        ({"owner": "shelf", "labels": ("a",)}, {"plain", "label", "model", "gpu", "kind"}),
        ({"owner": "shelf", "labels": ("b", "a")}, {"plain", "model", "gpu", "kind"}),
        ({"owner": "shelf", "labels": ("b", "c")}, set()),
        ({"owner": "shelf", "model": "m", "gpu": "g", "kind": "kv"}, {"plain", "label"}),
        ({"owner": "shelf", "kind": "memory"}, {"kind"}),
        ({"owner": "%"}, set()),
    ],
)
def test_filters_must_all_be_met(session: Session, shelf: dict[str, UUID], wanted: dict[str, Any], names: set[str]) -> None:
    listed = plans.list_plans(session, NOBODY.model_copy(update=wanted), None, 100)
    assert {plan.name for plan in listed if plan.id in shelf.values()} == names


def test_a_list_goes_on_behind_the_last_plan_and_misses_and_repeats_none(session: Session, shelf: dict[str, UUID]) -> None:
    wanted = NOBODY.model_copy(update={"labels": ("a",)})
    for days, plan_id in enumerate(shelf.values()):
        # Two plans of each day, so that the id decides between them.
        moment = datetime(2026, 1, 1 + days // 2, tzinfo=UTC)
        session.execute(text("update plans set created_at = :moment where id = :id"), {"moment": moment, "id": plan_id})
    whole = plans.list_plans(session, wanted, None, 100)
    assert [plan.created_at for plan in whole] == sorted((plan.created_at for plan in whole), reverse=True)
    pages: list[PlanHead] = []
    after = None
    while page := plans.list_plans(session, wanted, after, 1):
        pages += page
        after = (page[-1].created_at, page[-1].id)
    assert pages == whole


def test_a_revision_number_is_taken_once(session: Session) -> None:
    plan = stored(session)
    plans.insert_revision(session, plan.id, 2, contents())
    with pytest.raises(NoResultFound):
        plans.insert_revision(session, plan.id, 2, contents())
