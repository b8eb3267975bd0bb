"""Saved plans: compute, keep, find, change, compute again, compare; within the caller's transaction, so that all is kept or nothing."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import UUID, uuid4

from pydantic import BaseModel, ValidationError
from sqlalchemy.orm import Session

from app.db import plans
from app.domain.catalog import Catalog
from app.domain.errors import InvalidInput, NotFound, StaleVersion, UnknownName, under
from app.domain.json_difference import Difference, JsonObject
from app.domain.json_pointer import json_pointer
from app.domain.plan import Comparison, Kind, Plan, PlanContents, PlanFilter, PlanHead, PlanInput, Recomputation
from app.domain.plan_comparison import answer_differences, compare, differing
from app.domain.provenance import Answer, Versions

Calculation = tuple[type[BaseModel], Callable[[Catalog, Any], Answer]]
"""What a kind of plan asks for, and the function that answers it."""
Calculations = Mapping[str, Calculation]
AnyPlanInput = PlanInput[Any, Any]


def create(session: Session, catalog: Catalog, calculations: Calculations, new: AnyPlanInput) -> Plan:
    """Compute the answer and keep both as the first revision of a plan; a request that is refused stores nothing."""
    return plans.insert_plan(session, uuid4(), _computed(catalog, calculations, new))


def change(
    session: Session, catalog: Catalog, calculations: Calculations, plan_id: UUID, expected: frozenset[int] | None, new: AnyPlanInput
) -> Plan:
    """Keep a new revision with a freshly computed answer.

    `expected` names the revisions on which the caller may have based the change, None any. Raises NotFound, StaleVersion when another
    change came first, InvalidInput when the kind would change: a plan of another kind is another plan.
    """
    locked = _lock(session, plan_id, expected)
    if new.kind != locked.kind:
        raise InvalidInput(
            f"this is a {locked.kind} plan and stays one; create another plan for {new.kind}",
            field="/kind",
            value=new.kind,
            expected=locked.kind,
        )
    return plans.insert_revision(session, plan_id, locked.revision + 1, _computed(catalog, calculations, new))


def delete(session: Session, plan_id: UUID, expected: frozenset[int] | None) -> None:
    """Take the plan out of every list and answer; its revisions stay in the database. Raises NotFound and StaleVersion as `change` does."""
    _lock(session, plan_id, expected)
    plans.mark_deleted(session, plan_id)


def get(session: Session, plan_id: UUID, revision: int | None = None) -> Plan:
    """One revision of a plan, the current one unless another is asked for; raises NotFound."""
    plan = plans.find(session, plan_id, revision)
    if plan is None:
        what = "plan" if revision is None else f"plan with a revision {revision}"
        raise NotFound(f"there is no {what} under the id {plan_id}")
    return plan


def wanted_plans(
    catalog: Catalog, *, owner: str | None, labels: Sequence[str], model: str | None, gpu: str | None, kind: Kind | None
) -> PlanFilter:
    """The filter with names resolved to slugs; a name that the catalog no longer knows still finds the plans that were made with it."""
    return PlanFilter(
        owner=owner,
        labels=labels,
        model=None if model is None else _slug(catalog.model, model),
        gpu=None if gpu is None else _slug(catalog.gpu, gpu),
        kind=kind,
    )


def revisions(session: Session, plan_id: UUID, before: int | None, limit: int) -> Sequence[PlanHead]:
    """Revisions of a plan, newest first, at most `limit`, from the one older than `before`; raises NotFound."""
    found = plans.list_revisions(session, plan_id, before, limit)
    if not found:
        get(session, plan_id)
    return found


def recompute(
    session: Session, catalog: Catalog, calculations: Calculations, plan_id: UUID, *, save: bool, expected: frozenset[int] | None
) -> Recomputation:
    """What this planner and this catalog answer to the stored request, and in what that differs from the stored answer.

    With `save`, a new answer becomes a new revision unless neither the answer nor the versions changed. Raises NotFound, StaleVersion when
    `expected` is given and does not name the current revision, and what the calculation raises when it now refuses the request.
    """
    locked = _lock(session, plan_id, expected) if save or expected is not None else None
    stored = get(session, plan_id, None if locked is None else locked.revision)
    request_type, calculate = calculations[stored.kind]
    try:
        request = request_type.model_validate(stored.request)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        pointer = json_pointer("request", *first["loc"])
        raise InvalidInput(
            f"this version of the planner does not take the stored request any more: {first['msg']}", field=pointer
        ) from error
    with under("/request"):
        answer = calculate(catalog, request)
    fresh: JsonObject = answer.model_dump(mode="json")
    found = answer_differences(stored.answer, fresh)
    saved: int | None = None
    if save and (found or answer.versions != stored.versions):
        saved = plans.insert_revision(session, plan_id, stored.revision + 1, _contents(catalog, stored, request, answer)).revision
    return Recomputation(
        plan=plan_id,
        revision=stored.revision,
        saved_revision=saved,
        versions_before=stored.versions,
        versions_after=answer.versions,
        summary=_recomputation_summary(found, stored.versions, answer.versions, saved),
        differences=found,
        answer=fresh,
    )


def comparison(session: Session, plan_id: UUID, revision: int | None, other_id: UUID, other_revision: int | None) -> Comparison:
    """Two plans, or two revisions of one, side by side; raises NotFound."""
    return compare(get(session, plan_id, revision), get(session, other_id, other_revision))


def with_defaults(request: BaseModel) -> JsonObject:
    """The request with its defaults filled in; fields whose default is None are left out while they are None."""
    dumped: JsonObject = request.model_dump(mode="json")
    _drop_absent(request, dumped)
    return dumped


def _drop_absent(value: object, dumped: Any) -> None:
    """Drop null defaults from `dumped`; a null that the caller gave inside free-form JSON means something and stays."""
    if isinstance(value, BaseModel):
        for name, field in type(value).model_fields.items():
            member = getattr(value, name)
            if member is None and field.default is None:
                del dumped[name]
            else:
                _drop_absent(member, dumped[name])
    elif isinstance(value, Mapping):
        for member, dumped_member in zip(value.values(), dumped.values(), strict=True):
            _drop_absent(member, dumped_member)
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for member, dumped_member in zip(value, dumped, strict=True):
            _drop_absent(member, dumped_member)


def _computed(catalog: Catalog, calculations: Calculations, new: AnyPlanInput) -> PlanContents:
    _, calculate = calculations[new.kind]
    with under("/request"):
        answer = calculate(catalog, new.request)
    return _contents(catalog, new, new.request, answer)


def _contents(catalog: Catalog, details: AnyPlanInput | Plan, request: BaseModel, answer: Answer) -> PlanContents:
    return PlanContents(
        kind=details.kind,
        name=details.name,
        owner=details.owner,
        labels=details.labels,
        notes=details.notes,
        model=_named(request, "model", catalog.model),
        gpu=_named(request, "gpu", catalog.gpu),
        request=request.model_dump(mode="json", exclude_unset=True),
        inputs=with_defaults(request),
        answer=answer.model_dump(mode="json"),
        versions=answer.versions,
    )


def _named(request: BaseModel, field: str, look_up: Callable[[str], Any]) -> str | None:
    """Slug of what the request, or the plan that it prices, names there; None when it names nothing or describes it inline."""
    given = getattr(getattr(request, "plan", None) or request, field, None)
    return _slug(look_up, given) if isinstance(given, str) else None


def _slug(look_up: Callable[[str], Any], name: str) -> str:
    try:
        return str(look_up(name).slug)
    except UnknownName:
        return name.strip().casefold()


def _lock(session: Session, plan_id: UUID, expected: frozenset[int] | None) -> plans.Locked:
    locked = plans.lock(session, plan_id)
    if locked is None:
        raise NotFound(f"there is no plan under the id {plan_id}")
    if expected is not None and locked.revision not in expected:
        raise StaleVersion(
            f"the plan is at revision {locked.revision} now; read it again and send the change with its ETag",
            expected=f'"{locked.revision}"',
        )
    return locked


def _recomputation_summary(found: Sequence[Difference], before: Versions, after: Versions, saved: int | None) -> str:
    versions = "the same planner and catalog" if before == after else f"planner {after.planner} and catalog {after.catalog}"
    kept = "" if saved is None else f" Saved as revision {saved}."
    if not found:
        return f"With {versions} the answer is the same.{kept}"
    told = differing(found, "field of the answer", "fields of the answer") or "only the wording of the answer differs"
    return f"With {versions}: {told}.{kept}"
