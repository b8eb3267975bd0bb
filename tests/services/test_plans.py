"""Saved plans, computed by a calculation whose version and result the test chooses."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Literal, get_args
from uuid import uuid4

import pytest
from pydantic import BaseModel
from sqlalchemy import Engine, text
from sqlalchemy.orm import Session, sessionmaker

from app.catalog.loader import load_bundled
from app.domain.catalog import Catalog
from app.domain.errors import InvalidInput, NotFound, StaleVersion, UnknownName
from app.domain.plan import Plan, PlanInput
from app.domain.provenance import Answer, Note, Step, Versions
from app.domain.value import Value
from app.services import plans
from app.services.diagnosis import DiagnoseRequest
from app.services.estimates import CALCULATIONS
from app.services.plans import Calculations, with_defaults

LLAMA, LLAMA_ON_HUB = "llama-3.1-70b", "meta-llama/Llama-3.1-70B"


class Options(Value):
    """Nested, with an optional member."""

    num_rows: int = 4
    limit: int | None = None


class StandInRequest(Value):
    """A body with one field of each kind that storing has to keep."""

    model: str | dict[str, Any]
    gpu: str | None = None
    tp: int = 1
    options: Options = Options()
    free: dict[str, Any] | None = None


class StandInAnswer(Answer):
    """A figure that depends on request and planner."""

    tokens: int
    num_given: int
    limiting: str | None


def calculations(*, factor: int = 1, planner: str = "1") -> Calculations:
    """A planner of some version that multiplies tp by `factor`."""

    def calculate(catalog: Catalog, request: StandInRequest) -> StandInAnswer:
        if isinstance(request.model, str):
            catalog.model(request.model)
        if request.tp > 64:
            raise InvalidInput("too many", field="/tp", value=request.tp)
        value = request.tp * factor
        return StandInAnswer(
            summary=f"{value} tokens",
            working=[Step(name="tokens", formula="tp x f", substituted="", value=value, unit="tokens", basis="exact", source="test")],
            assumptions=[] if "tp" in request.model_fields_set else [Note(code="default_tp", message="tp 1")],
            warnings=[],
            versions=Versions(planner=planner, catalog=catalog.version),
            tokens=value,
            num_given=len(request.model_fields_set),
            limiting=None,
        )

    return {"kv": (StandInRequest, calculate), "memory": (StandInRequest, calculate)}


OLD = calculations()
NEW = calculations(factor=2, planner="2")


def plan_input(kind: str = "kv", owner: str = "platform", **request: Any) -> PlanInput[Any, Any]:
    body = StandInRequest.model_validate({"model": LLAMA, **request})
    return PlanInput[Literal["kv", "memory"], StandInRequest].model_validate(
        {"kind": kind, "name": "A plan", "owner": owner, "request": body}
    )


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    bundled = load_bundled()
    return Catalog(gpus=bundled.gpus, models=bundled.models, prices=bundled.prices, version="c-1", engines=tuple(bundled.engines.values()))


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
    assert found.summary == "With planner 2 with catalog c-1 2 fields of the answer differ: /tokens 5 -> 10 (+1 of before)."
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
    assert found.summary == "With planner 1.1 with catalog c-1 the answer is the same. Saved as revision 2."


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
    assert found.summary.startswith(
        "From revision 1 to revision 2: 2 inputs differ: /tp 4 -> 2 (-0.5 of before), /options/limit nothing -> 9."
    )


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


@pytest.fixture
def committing(engine: Engine) -> Iterator[sessionmaker[Session]]:
    """Sessions on connections of their own that commit; what they leave is deleted."""
    yield sessionmaker(engine, expire_on_commit=False)
    with engine.begin() as connection:
        of_race = "(select id from plans where owner = 'race')"
        connection.execute(text(f"delete from plan_revisions where plan_id in {of_race}"))  # noqa: S608
        connection.execute(text("delete from plans where owner = 'race'"))


def at_once(actions: list[Callable[[], Any]]) -> list[Any]:
    """Results or exceptions of actions that start together."""
    barrier = threading.Barrier(len(actions))

    def run(action: Callable[[], Any]) -> Any:
        barrier.wait()
        try:
            return action()
        except Exception as error:
            return error

    with ThreadPoolExecutor(len(actions)) as pool:
        return list(pool.map(run, actions))


def test_of_changes_made_at_once_on_one_revision_exactly_one_wins(committing: sessionmaker[Session], catalog: Catalog) -> None:
    with committing.begin() as session:
        plan_id = plans.create(session, catalog, OLD, plan_input(owner="race")).id

    def change(tp: int) -> Plan:
        with committing.begin() as session:
            return plans.change(session, catalog, OLD, plan_id, frozenset({1}), plan_input(owner="race", tp=tp))

    outcomes = at_once([partial(change, tp) for tp in range(2, 8)])
    winners = [outcome for outcome in outcomes if isinstance(outcome, Plan)]
    assert len(winners) == 1
    assert sum(isinstance(outcome, StaleVersion) for outcome in outcomes) == 5
    with committing() as session:
        assert plans.get(session, plan_id) == winners[0]
        assert [each.revision for each in plans.revisions(session, plan_id, None, 10)] == [2, 1]


def test_a_change_waits_for_one_under_way_and_then_sees_it(committing: sessionmaker[Session], catalog: Catalog) -> None:
    with committing.begin() as session:
        plan_id = plans.create(session, catalog, OLD, plan_input(owner="race")).id
    started = threading.Event()
    outcome: list[Plan | StaleVersion] = []

    def second() -> None:
        with committing() as session:
            started.set()
            try:
                outcome.append(plans.change(session, catalog, OLD, plan_id, frozenset({1}), plan_input(owner="race", tp=3)))
            except StaleVersion as error:
                outcome.append(error)

    with committing.begin() as first:
        plans.change(first, catalog, OLD, plan_id, frozenset({1}), plan_input(owner="race", tp=2))
        waiting = threading.Thread(target=second)
        waiting.start()
        started.wait()
        waiting.join(timeout=0.3)
        assert waiting.is_alive()
        assert outcome == []
    waiting.join(timeout=10)
    assert isinstance(outcome[0], StaleVersion)


def test_a_transaction_that_fails_leaves_nothing_of_the_plan(committing: sessionmaker[Session], catalog: Catalog) -> None:
    with committing() as session:
        plan = plans.create(session, catalog, OLD, plan_input(owner="race"))
        with pytest.raises(InvalidInput):
            plans.change(session, catalog, OLD, plan.id, None, plan_input(owner="race", tp=65))
        session.rollback()
    with committing() as session:
        assert session.execute(text("select count(*) from plan_revisions where plan_id = :id"), {"id": plan.id}).scalar_one() == 0
        with pytest.raises(NotFound):
            plans.get(session, plan.id)
