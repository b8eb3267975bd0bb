"""Saved plans, computed by a calculation whose version and result the test chooses."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Literal, get_args
from uuid import uuid4

import pytest
from pydantic import BaseModel
from sqlalchemy import text
from sqlalchemy.orm import Session

from app.domain.catalog import Catalog
from app.domain.errors import InvalidInput, NotFound, StaleVersion, UnknownName
from app.domain.provenance import Versions
from app.services import plans
from app.services.diagnosis import DiagnoseRequest
from app.services.estimates import CALCULATIONS
from app.services.plans import Calculations, with_defaults
from tests.services.stand_in import LLAMA, LLAMA_ON_HUB, NEW, OLD, StandInAnswer, StandInRequest, calculations, plan_input


def count(session: Session) -> int:
    return int(session.execute(text("select (select count(*) from plans) + (select count(*) from plan_revisions)")).scalar_one())


def test_a_plan_holds_request_answer_and_versions(session: Session, catalog: Catalog) -> None:
    plan = plans.create(session, catalog, OLD, plan_input(tp=4, model=LLAMA_ON_HUB, gpu="H100-SXM-80GB"))
    assert plan.versions == Versions(planner="1", catalog="c-1")
    assert (plan.model, plan.gpu) == (LLAMA, "h100-sxm-80gb")
    assert plan.request == {"model": LLAMA_ON_HUB, "gpu": "H100-SXM-80GB", "tp": 4}
    assert plan.inputs == {"model": LLAMA_ON_HUB, "gpu": "H100-SXM-80GB", "tp": 4, "options": {"num_rows": 4}}
    assert plan.answer["tokens"] == 4
    assert plan.answer["versions"] == {"planner": "1", "catalog": "c-1"}
    assert plans.get(session, plan.id) == plan


def test_a_model_described_inline_has_no_name(session: Session, catalog: Catalog) -> None:
    plan = plans.create(session, catalog, OLD, plan_input(model={"params": 7}))
    assert (plan.model, plan.gpu) == (None, None)


def test_a_refused_request_stores_nothing_and_names_the_field_of_the_plan(session: Session, catalog: Catalog) -> None:
    before = count(session)
    with pytest.raises(InvalidInput) as refused:
        plans.create(session, catalog, OLD, plan_input(tp=65))
    assert refused.value.field == "/request/tp"
    with pytest.raises(UnknownName) as unknown:
        plans.create(session, catalog, OLD, plan_input(model="llama-9"))
    assert unknown.value.field == "/request/model"
    plan = plans.create(session, catalog, OLD, plan_input())
    with pytest.raises(InvalidInput):
        plans.change(session, catalog, OLD, plan.id, None, plan_input(tp=65))
    assert count(session) == before + 2
    assert plans.get(session, plan.id).revision == 1


def test_defaults_are_filled_in_and_a_null_that_means_something_stays() -> None:
    request = StandInRequest.model_validate(
        {"model": "m", "free": {"sliding_window": None, "deep": [{"x": None}]}, "options": {"num_rows": 5}}
    )
    assert with_defaults(request) == {
        "model": "m",
        "tp": 1,
        "options": {"num_rows": 5},
        "free": {"sliding_window": None, "deep": [{"x": None}]},
    }


def request_types(annotation: Any) -> Iterator[type[BaseModel]]:
    """Every value that a type can hold, itself included."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
        for field in annotation.model_fields.values():
            yield from request_types(field.annotation)
    for argument in get_args(annotation):
        yield from request_types(argument)


@pytest.mark.parametrize("request_type", [*(request_type for request_type, _ in CALCULATIONS.values()), DiagnoseRequest])
def test_no_request_takes_a_null_for_something_else_than_its_default(request_type: type[BaseModel]) -> None:
    """Leaving null defaults out loses nothing as long as null can be given only where it is the default."""
    nullable = {
        f"{each.__name__}.{name}": field
        for each in request_types(request_type)
        for name, field in each.model_fields.items()
        if type(None) in get_args(field.annotation)
    }
    assert len(nullable) > 3
    assert [name for name, field in nullable.items() if field.default is not None] == []


def test_a_change_is_a_new_revision_and_the_earlier_one_stays(session: Session, catalog: Catalog) -> None:
    first = plans.create(session, catalog, OLD, plan_input(tp=2))
    second = plans.change(session, catalog, NEW, first.id, frozenset({1}), plan_input(tp=8))
    assert (second.revision, second.answer["tokens"], second.versions.planner) == (2, 16, "2")
    assert plans.get(session, first.id) == second
    assert plans.get(session, first.id, 1) == first
    assert [each.revision for each in plans.revisions(session, first.id, None, 10)] == [2, 1]


def test_a_stale_change_is_refused(session: Session, catalog: Catalog) -> None:
    plan = plans.create(session, catalog, OLD, plan_input())
    plans.change(session, catalog, OLD, plan.id, frozenset({1}), plan_input(tp=2))
    attempts: list[Callable[[], Any]] = [
        partial(plans.change, session, catalog, OLD, plan.id, frozenset({1}), plan_input(tp=3)),
        partial(plans.delete, session, plan.id, frozenset({1})),
        partial(plans.recompute, session, catalog, OLD, plan.id, save=False, expected=frozenset({1})),
        partial(plans.change, session, catalog, OLD, plan.id, frozenset(), plan_input(tp=3)),
    ]
    for attempt in attempts:
        with pytest.raises(StaleVersion):
            attempt()
    assert plans.get(session, plan.id).inputs["tp"] == 2


def test_a_plan_keeps_its_kind(session: Session, catalog: Catalog) -> None:
    plan = plans.create(session, catalog, OLD, plan_input("kv"))
    with pytest.raises(InvalidInput, match="kv plan"):
        plans.change(session, catalog, OLD, plan.id, frozenset({1}), plan_input("memory"))


def test_what_is_deleted_or_never_was_is_not_found(session: Session, catalog: Catalog) -> None:
    plan = plans.create(session, catalog, OLD, plan_input())
    plans.delete(session, plan.id, frozenset({1}))
    for plan_id in (plan.id, uuid4()):
        attempts: list[Callable[[], Any]] = [
            partial(plans.get, session, plan_id),
            partial(plans.get, session, plan_id, 1),
            partial(plans.revisions, session, plan_id, None, 10),
            partial(plans.delete, session, plan_id, None),
            partial(plans.change, session, catalog, OLD, plan_id, None, plan_input()),
            partial(plans.recompute, session, catalog, OLD, plan_id, save=True, expected=None),
            partial(plans.comparison, session, plan_id, None, plan_id, None),
        ]
        for attempt in attempts:
            with pytest.raises(NotFound):
                attempt()


def test_the_same_planner_and_catalog_change_nothing(session: Session, catalog: Catalog) -> None:
    plan = plans.create(session, catalog, OLD, plan_input())
    found = plans.recompute(session, catalog, OLD, plan.id, save=True, expected=None)
    assert (list(found.differences), found.saved_revision, found.answer) == ([], None, plan.answer)
    assert found.summary == "With the same planner and catalog the answer is the same."
    assert plans.get(session, plan.id) == plan


def test_recomputing_says_what_a_newer_planner_changes(session: Session, catalog: Catalog) -> None:
    plan = plans.create(session, catalog, OLD, plan_input(tp=5))
    found = plans.recompute(session, catalog, NEW, plan.id, save=False, expected=None)
    assert (found.versions_before.planner, found.versions_after.planner) == ("1", "2")
    changed = {each.pointer: (each.before, each.after, each.change, each.change_ratio) for each in found.differences}
    assert changed == {"/summary": ("5 tokens", "10 tokens", None, None), "/tokens": (5, 10, 5, 1.0)}
    assert found.answer["tokens"] == 10
    assert found.summary == "With planner 2 and catalog c-1: 1 field of the answer differs: /tokens 5 -> 10 (+100 %)."
    assert plans.get(session, plan.id) == plan


def test_a_saved_recomputation_is_a_revision_with_the_same_details(session: Session, catalog: Catalog) -> None:
    plan = plans.create(session, catalog, OLD, plan_input(tp=5))
    found = plans.recompute(session, catalog, NEW, plan.id, save=True, expected=frozenset({1}))
    assert found.saved_revision == 2
    now = plans.get(session, plan.id)
    assert (now.revision, now.versions.planner, now.answer) == (2, "2", found.answer)
    assert (now.name, now.owner, now.request, now.inputs) == (plan.name, plan.owner, plan.request, plan.inputs)
    assert plans.recompute(session, catalog, NEW, plan.id, save=True, expected=None).saved_revision is None


def test_a_new_version_with_the_same_answer_is_worth_a_revision(session: Session, catalog: Catalog) -> None:
    plan = plans.create(session, catalog, OLD, plan_input())
    found = plans.recompute(session, catalog, calculations(planner="1.1"), plan.id, save=True, expected=None)
    assert (list(found.differences), found.saved_revision) == ([], 2)
    assert found.summary == "With planner 1.1 and catalog c-1 the answer is the same. Saved as revision 2."


def test_what_the_catalog_no_longer_knows_is_refused_by_name(session: Session, catalog: Catalog) -> None:
    plan = plans.create(session, catalog, OLD, plan_input())
    smaller = Catalog(gpus={}, models={}, prices={}, version="c-2")
    with pytest.raises(UnknownName) as unknown:
        plans.recompute(session, smaller, OLD, plan.id, save=True, expected=None)
    assert unknown.value.field == "/request/model"
    assert plans.get(session, plan.id) == plan


def test_a_request_that_the_planner_no_longer_takes_is_refused_by_field(session: Session, catalog: Catalog) -> None:
    class StricterRequest(StandInRequest):
        tp: Literal[1]

    plan = plans.create(session, catalog, OLD, plan_input(tp=4))
    stricter: Calculations = {"kv": (StricterRequest, OLD["kv"][1])}
    with pytest.raises(InvalidInput, match="does not take the stored request") as refused:
        plans.recompute(session, catalog, stricter, plan.id, save=False, expected=None)
    assert refused.value.field == "/request/tp"


def test_revisions_of_a_plan_are_compared(session: Session, catalog: Catalog) -> None:
    plan = plans.create(session, catalog, OLD, plan_input(tp=4))
    plans.change(session, catalog, OLD, plan.id, None, plan_input(tp=2, options={"limit": 9}))
    found = plans.comparison(session, plan.id, 1, plan.id, None)
    assert [(each.pointer, each.before, each.after, each.change_ratio) for each in found.inputs] == [
        ("/tp", 4, 2, -0.5),
        ("/options/limit", None, 9, None),
    ]
    assert [each.pointer for each in found.answers] == ["/summary", "/tokens", "/num_given"]
    assert (found.before.revision, found.after.revision, found.not_compared) == (1, 2, [])
    assert found.summary.startswith("From revision 1 to revision 2: 2 inputs differ: /tp 4 -> 2 (-50 %), /options/limit nothing -> 9.")


def test_a_default_equals_the_same_value_given(session: Session, catalog: Catalog) -> None:
    one, other = plans.create(session, catalog, OLD, plan_input()), plans.create(session, catalog, OLD, plan_input(tp=1))
    assert list(plans.comparison(session, one.id, None, other.id, None).inputs) == []


def test_plans_of_different_kinds_are_compared_on_what_both_have(session: Session, catalog: Catalog) -> None:
    class OtherAnswer(StandInAnswer):
        num_blocks: int

    def calculate(catalog: Catalog, request: StandInRequest) -> OtherAnswer:
        return OtherAnswer(**dict(OLD["kv"][1](catalog, request)), num_blocks=3)

    one = plans.create(session, catalog, OLD, plan_input("kv", tp=2))
    other = plans.create(session, catalog, {"memory": (StandInRequest, calculate)}, plan_input("memory", tp=4, gpu="h200-sxm-141gb"))
    found = plans.comparison(session, one.id, None, other.id, None)
    assert [each.pointer for each in found.inputs] == ["/tp"]
    assert [each.pointer for each in found.answers] == ["/summary", "/tokens", "/num_given"]
    assert list(found.not_compared) == ["/inputs/gpu", "/answer/num_blocks"]


def test_names_of_a_filter_are_resolved_and_unknown_ones_taken_as_they_are(catalog: Catalog) -> None:
    wanted = plans.wanted_plans(catalog, owner=None, labels=(), model=LLAMA_ON_HUB.upper(), gpu=" Gone-GPU ", kind=None)
    assert (wanted.model, wanted.gpu) == (LLAMA, "gone-gpu")
