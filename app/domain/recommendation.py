"""The answer of `/recommend`: the cheapest deployments that hold the objectives, the front, and why others do not."""

from collections.abc import Mapping, Sequence
from typing import Literal

from app.domain.capacity import ConstraintName
from app.domain.capacity_answer import CapacityAnswer
from app.domain.demand import Demand
from app.domain.deployment import Deployment
from app.domain.expected_latency import ExpectedLatency
from app.domain.fleet_cost import FleetCost
from app.domain.llm import Llm
from app.domain.memory_fit import Verdict
from app.domain.provenance import Answer, Note, Versions
from app.domain.quantisation_quality import quality_notes
from app.domain.search import Found
from app.domain.search_leaders import Candidate
from app.domain.search_space import Reason
from app.domain.units import seconds
from app.domain.value import Value

Plans = Mapping[int, CapacityAnswer]
"""What `/capacity` says about the candidates, by their identity."""


class Recommended(Value):
    """A deployment that holds the objectives; sent to `/capacity` with the same workload and percentiles
    approximated, `deployment` gives the same figures."""

    gpu: str
    """Catalog slug of the accelerator."""
    deployment: Deployment
    """How one replica runs."""
    verdict: Verdict
    """As `/memory` says: only deployments that serve are recommended."""
    replicas: int
    """Replicas in all, redundancy and spares included."""
    replicas_exact: float
    """Replicas of the binding constraint, before rounding and redundancy."""
    gpus_per_replica: int
    """Accelerators of one replica: tp x pp x dp."""
    gpus: int
    """Accelerators in all: replicas x gpus_per_replica."""
    binding: ConstraintName
    """The constraint that needs most replicas."""
    headroom_ratio: float
    """Share of the fleet that the peak does not need: 1 - replicas_exact / replicas."""
    expected: ExpectedLatency
    """Times of requests with the peak spread over all replicas, and whether each objective holds at the high end of its range, too."""
    cost: FleetCost
    """Price of the fleet at the demand of the peak."""
    quality: list[Note]
    """What public evaluations say about its quantisation."""


class Refused(Value):
    """Candidates that were refused for one reason."""

    reason: Reason
    """The reason."""
    num_candidates: int
    """How many."""
    example: str
    """The first of them, with its figures."""


class SearchReport(Value):
    """What became of the candidates: num_held + num_beaten + those refused = num_decided."""

    num_candidates: int
    """All combinations of accelerators, engines, precisions, layouts and settings."""
    num_decided: int
    """Candidates of which it is known what became of them."""
    num_held: int
    """Candidates that hold the objectives and were computed to the end."""
    num_beaten: int
    """Candidates whose bounds show that they are neither among the cheapest nor on the front; whether they hold the objectives is open."""
    num_computed: int
    """Candidates computed to the end."""
    complete: bool
    """All candidates were decided."""
    stopped_by: Literal["time", "cancelled"] | None
    """What ended the search early."""
    searched_s: float
    """Time that the search took [s]."""


class RecommendAnswer(Answer):
    """Deployments that hold the objectives."""

    model: str
    """Catalog slug of the model, or `inline`."""
    demand: Demand | None
    """What the traffic needs; None when nothing holds the objectives."""
    deployments: list[Recommended]
    """Cheapest first, each accelerator, engine, layout and pair of precisions once, with its best settings."""
    front: list[Recommended]
    """Deployments that no other is at least as good as in price, headroom for the price, TTFT and TPOT at once; differences within 10 %
    count as none. Cheapest first."""
    num_on_front: int
    """Length of the whole front, of which `front` is the cheapest part."""
    refused: list[Refused]
    """Why candidates were refused, most frequent first."""
    search: SearchReport
    """What became of the candidates."""


def answer_recommendation(
    llm: Llm,
    found: Found,
    plans: Plans,
    *,
    most: int,
    searched_s: float,
    cancelled: bool,
    assumptions: list[Note],
    versions: Versions,
) -> RecommendAnswer:
    """What a search found, at most `most` entries a list, with the plans of what is listed; the working is that of the cheapest."""
    leaders, counts = found.leaders, found.refusals.counts
    cheapest, front = leaders.cheapest, leaders.front
    best = plans[id(cheapest[0])] if cheapest else None
    stopped: Literal["time", "cancelled"] | None = None if found.complete else "cancelled" if cancelled else "time"
    return RecommendAnswer(
        summary=_summary(llm, found, cheapest, plans),
        working=best.working if best else [],
        assumptions=assumptions,
        warnings=_warnings(
            found, best, cheapest, uncalibrated=best is not None and not _is_calibrated(best) and any(map(_is_calibrated, plans.values()))
        ),
        versions=versions,
        model=llm.slug,
        demand=best.demand if best else None,
        deployments=[_recommended(llm, each, plans[id(each)]) for each in cheapest],
        front=[_recommended(llm, each, plans[id(each)]) for each in front[:most]],
        num_on_front=len(front),
        refused=[
            Refused(reason=reason, num_candidates=count, example=found.refusals.examples[reason])
            for reason, count in sorted(counts.items(), key=lambda one: -one[1])
        ],
        search=SearchReport(
            num_candidates=found.num_candidates,
            num_decided=found.num_decided,
            num_held=found.num_held,
            num_beaten=found.num_beaten,
            num_computed=found.num_computed,
            complete=found.complete,
            stopped_by=stopped,
            searched_s=searched_s,
        ),
    )


def _recommended(llm: Llm, candidate: Candidate, plan: CapacityAnswer) -> Recommended:
    performance, outcome = candidate.performance, candidate.outcome
    assert plan.replicas and plan.gpus and plan.binding and plan.cost and plan.expected  # noqa: S101, PT018 - only what serves at a price is a candidate
    return Recommended(
        gpu=candidate.family.priced.gpu.slug,
        deployment=performance.deployment,
        verdict=performance.found.verdict,
        replicas=plan.replicas,
        replicas_exact=outcome.replicas_exact,
        gpus_per_replica=plan.gpus_per_replica,
        gpus=plan.gpus,
        binding=plan.binding,
        headroom_ratio=1 - outcome.replicas_exact / plan.replicas,
        expected=plan.expected,
        cost=plan.cost,
        quality=quality_notes(llm, performance.deployment),
    )


def _is_calibrated(plan: CapacityAnswer) -> bool:
    return any(note.code == "calibration_used" for note in plan.assumptions)


def _warnings(found: Found, best: CapacityAnswer | None, cheapest: Sequence[Candidate], *, uncalibrated: bool) -> list[Note]:
    warnings = []
    if not found.complete:
        share = f"{found.num_decided} of {found.num_candidates} candidates"
        message = (
            f"The search was stopped after {share}: what is listed holds the objectives, but something cheaper may not have been seen."
        )
        warnings.append(Note(code="search_incomplete", message=message))
    if best is not None:
        warnings += best.warnings
    if uncalibrated:
        message = (
            "Other candidates follow a calibration, the cheapest does not: it may look better because it was not measured. "
            "Calibrate it, too, or search the measured precisions alone."
        )
        warnings.append(Note(code="cheapest_not_calibrated", message=message))
    if cheapest and not cheapest[0].performance.is_fitted:
        message = "No measurement of this engine, class of accelerator, weights and kind of model was in the fit: load-test the cheapest."
        warnings.append(Note(code="not_calibrated", message=message))
    return warnings


def _summary(llm: Llm, found: Found, cheapest: Sequence[Candidate], plans: Plans) -> str:
    if not cheapest:
        reason = max(found.refusals.counts, key=lambda one: found.refusals.counts[one], default=None)
        most = "" if reason is None else f"; most often {reason}: {found.refusals.examples[reason]}"
        return f"{llm.slug}: none of the {found.num_decided} candidates looked at holds the objectives{most}."
    first = cheapest[0]
    plan = plans[id(first)]
    assert plan.cost is not None  # noqa: S101 - candidates have a price
    others = ""
    different = next((each for each in cheapest if each.family.priced.gpu.slug != first.family.priced.gpu.slug), None)
    if different is not None and (other := plans[id(different)].cost) is not None:
        others = f" Next best accelerator: {different.family.priced.gpu.slug} at {other.usd_per_hour:,.2f} USD/hour."
    gpu = first.family.priced.gpu.slug
    return (
        f"{llm.slug} for {plan.demand.request_rps:g} requests/s is cheapest on {plan.gpus} {gpu} = {plan.replicas} "
        f"replicas ({first.family.name.split(', ', 1)[1]}): {plan.cost.usd_per_hour:,.2f} USD/hour, {plan.cost.usd_per_request:.3g} USD a "
        f"request; TTFT {seconds(first.outcome.ttft_s)}, TPOT {seconds(first.outcome.tpot_s)} on average.{others}"
    )
