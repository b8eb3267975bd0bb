"""Which deployment to rent: a bounded search over the catalog, and the plan of each deployment that it recommends."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Literal

from pydantic import Field, model_validator

from app.domain.calibration import Calibrations
from app.domain.catalog import Catalog, PriceKind
from app.domain.deployment import Deployment, Tokens
from app.domain.errors import InvalidInput
from app.domain.fleet import Reserve
from app.domain.llm import Llm
from app.domain.precision import WEIGHTS, KvChoice, WeightFormat
from app.domain.provenance import Note
from app.domain.recommendation import RecommendAnswer, answer_recommendation
from app.domain.search import Progress, Search
from app.domain.search_judge import TrafficJudge
from app.domain.search_leaders import Candidate, Leaders
from app.domain.search_space import Priced, Setting, Space
from app.domain.units import plain
from app.domain.value import Given
from app.domain.weights import weights_size
from app.domain.workload import Slo, Workload
from app.services.assumptions import defaults_used, length_notes
from app.services.capacity import capacity
from app.services.prices import PRICE_WORDS
from app.services.references import resolve_model
from app.services.requests import CapacityRequest, ModelRef, Name, SafetyRatio, Usd
from app.services.versions import versions_of

SearchedEngine = Literal["vllm", "sglang", "tensorrt-llm"]
SearchedWeights = Literal["checkpoint", "bf16", "fp16", "fp8", "int8", "int4", "awq", "gptq", "nvfp4", "mxfp4"]
NARROWER: tuple[WeightFormat, ...] = ("fp8", "int8", "awq", "nvfp4")
"""Formats in which checkpoints are commonly published beside their own: https://huggingface.co/RedHatAI, https://huggingface.co/nvidia."""
MOST_DIRECT_SEARCH_S = 60.0
MOST_DIRECT_CANDIDATES = 10**6
OWN_PRICE = "request"
"""Where a price comes from that the request gives."""


class Limits(Given):
    """How far a search goes."""

    max_gpus_per_replica: Annotated[int, Field(ge=1, le=64)] = 8
    """Most accelerators of one replica."""
    max_candidates: Annotated[int, Field(ge=1, le=10**7)] = 200_000
    """Larger searches are refused. Above a million the search becomes a job."""
    max_search_s: Annotated[float, Field(ge=0.01, le=3600)] = 20
    """Time after which the search stops with what it has found; above 60 s it becomes a job [s]."""
    max_deployments: Annotated[int, Field(ge=1, le=50)] = 10
    """Most entries of `deployments`, and of `front`."""

    @property
    def is_direct(self) -> bool:
        """Whether the search is short enough to be answered at once."""
        return self.max_search_s <= MOST_DIRECT_SEARCH_S and self.max_candidates <= MOST_DIRECT_CANDIDATES


class RecommendRequest(Given):
    """Which deployments hold the objectives, and which is cheapest."""

    model: ModelRef
    """The model."""
    workload: Workload
    """The traffic."""
    slo: Slo
    """Latency objectives."""
    gpus: Annotated[Sequence[Name], Field(min_length=1, max_length=200)] | None = None
    """Accelerators to choose from; left out, all of the catalog that have a price of the kind that `price_kind` names."""
    prices: Annotated[Mapping[Name, Usd], Field(max_length=200)] = {}
    """Own prices of accelerators by name, in place of the catalog's lowest [USD/hour]."""
    price_kind: PriceKind = "on_demand"
    """Which prices of the catalog are used, and what kind the own prices are."""
    engines: Annotated[Sequence[SearchedEngine], Field(min_length=1, max_length=3)] = ("vllm",)
    """Inference engines."""
    weights: Annotated[Sequence[SearchedWeights], Field(min_length=1, max_length=10)] | None = None
    """Precisions of the weights; left out, the checkpoint's own and the common narrower ones."""
    kv_caches: Annotated[Sequence[KvChoice], Field(min_length=1, max_length=7)] = ("auto", "fp8")
    """Precisions of the cache."""
    max_num_batched_tokens: Annotated[Sequence[Tokens], Field(min_length=1, max_length=20)] = (2048, 4096, 8192, 16384)
    """Token budgets of a step."""
    max_num_seqs: Annotated[Sequence[Annotated[int, Field(ge=1, le=10**6)]], Field(min_length=1, max_length=20)] = (64, 128, 256, 512, 1024)
    """Limits of the sequences that run at once."""
    max_model_len_tokens: Tokens | None = None
    """Longest sequence that is admitted; None is the model's own limit."""
    redundancy_ratio: Annotated[float, Field(ge=1, le=100)] = 1.25
    """Factor on the replicas that are needed: failures, rolling updates, bursts."""
    spare_replicas: Annotated[int, Field(ge=0, le=10_000)] = 0
    """Replicas added on top."""
    safety_ratio: SafetyRatio = 0.7
    """Share of the theoretical concurrency to plan with."""
    calibration: Literal["none"] | None = None
    """none: the constants of the class for every candidate; left out: candidates that were calibrated have their own."""
    limits: Limits = Limits()
    """How far the search goes."""

    @model_validator(mode="after")
    def _has_objective(self) -> "RecommendRequest":
        if not self.slo.has_objective:
            raise ValueError("slo needs at least one objective: ttft_p95_s, tpot_p95_s or e2e_p95_s, or the same with p99")
        return self


def recommend(
    catalog: Catalog,
    request: RecommendRequest,
    progress: Progress | None = None,
    tell: Callable[[float], None] = lambda _: None,
) -> RecommendAnswer:
    """Search, then plan what was found with `/capacity`, whose figures are returned; raises PlannerError.

    Takes as long as the limits allow: not for the event loop. `progress` may be read, and cancelled, from another thread. `tell` is told
    the share of the candidates that is decided, or of the time that has passed where that is more, and may raise to end the search.
    """
    began = time.monotonic()
    known = progress or Progress()

    def out_of_time() -> bool:
        passed = (time.monotonic() - began) / request.limits.max_search_s
        tell(min(1.0, max(passed, known.num_decided / max(1, known.num_candidates))))
        return passed >= 1

    search = search_of(catalog, request, known, out_of_time)
    found, most = search.run(), request.limits.max_deployments
    searched_s = time.monotonic() - began
    leaders = found.leaders
    listed = {id(each): each for each in (*leaders.cheapest, *leaders.front[:most])}
    planned = {key: capacity(catalog, _plan(request, each)) for key, each in listed.items()}
    calibrated = {note.message: note for plan in planned.values() for note in plan.assumptions if note.code == "calibration_used"}
    return answer_recommendation(
        search.space.llm,
        found,
        planned,
        most=most,
        searched_s=searched_s,
        cancelled=search.progress.cancelled,
        assumptions=[*_assumptions(request, search.space), *calibrated.values()],
        versions=versions_of(catalog),
    )


def search_of(
    catalog: Catalog,
    request: RecommendRequest,
    progress: Progress | None = None,
    out_of_time: Callable[[], bool] = lambda: False,
) -> Search:
    """The search that a request asks for; raises UnknownName, and InvalidInput where it has too many candidates."""
    llm = resolve_model(catalog, request.model)
    space = _space(catalog, request, llm)
    if space.num_candidates > request.limits.max_candidates:
        raise InvalidInput(
            f"{space.num_candidates} candidates are more than the {request.limits.max_candidates} of limits.max_candidates",
            field="/limits/max_candidates",
            value=request.limits.max_candidates,
            expected=f"at least {space.num_candidates}, or fewer gpus, engines, precisions or settings",
        )
    judge = TrafficJudge(
        llm=llm,
        engines=space.memory,
        model=catalog.step_model,
        calibrations=catalog.calibrations if request.calibration is None else Calibrations(),
        workload=request.workload,
        slo=request.slo,
        reserve=Reserve(request.redundancy_ratio, request.spare_replicas),
        safety_ratio=request.safety_ratio,
        most_seqs=max(request.max_num_seqs),
    )
    return Search(space, judge, Leaders(request.limits.max_deployments), progress or Progress(), out_of_time)


def _plan(request: RecommendRequest, candidate: Candidate) -> CapacityRequest:
    """The request to `/capacity` that plans a candidate."""
    priced = candidate.family.priced
    return CapacityRequest(
        model=request.model,
        gpu=priced.gpu.slug,
        deployment=candidate.performance.deployment,
        workload=request.workload,
        slo=request.slo,
        redundancy_ratio=request.redundancy_ratio,
        spare_replicas=request.spare_replicas,
        safety_ratio=request.safety_ratio,
        calibration=request.calibration,
        percentiles="approximated",
        usd_per_gpu_hour=priced.usd_per_gpu_hour if priced.source == OWN_PRICE else None,
        price_kind=request.price_kind,
    )


def _space(catalog: Catalog, request: RecommendRequest, llm: Llm) -> Space:
    own = {catalog.gpu(name, field=f"/prices/{name}").slug: price for name, price in request.prices.items()}
    if request.gpus is None:
        priced = {price.gpu for price in catalog.prices.values() if price.kind == request.price_kind}
        slugs = sorted(priced & catalog.gpus.keys() | own.keys())
    else:
        slugs = list(dict.fromkeys(catalog.gpu(name, field=f"/gpus/{place}").slug for place, name in enumerate(request.gpus)))
    budgets, seqs = dict.fromkeys(request.max_num_batched_tokens), dict.fromkeys(request.max_num_seqs)
    return Space(
        llm=llm,
        accelerators=[_priced(catalog, slug, request.price_kind, own) for slug in slugs],
        template=Deployment(max_model_len_tokens=request.max_model_len_tokens),
        engines=tuple(dict.fromkeys(request.engines)),
        weights=_weights(request, llm),
        kv_caches=tuple(dict.fromkeys(request.kv_caches)),
        settings=[Setting(budget, limit) for budget in budgets for limit in seqs],
        max_gpus_per_replica=request.limits.max_gpus_per_replica,
        memory={engine: catalog.engine(engine, field="/engines") for engine in request.engines},
    )


def _priced(catalog: Catalog, slug: str, kind: PriceKind, own: Mapping[str, float]) -> Priced:
    gpu, price = catalog.gpu(slug), catalog.price(slug, kind)
    if slug in own:
        return Priced(gpu, own[slug], OWN_PRICE)
    if price is None:
        return Priced(gpu, None, "")
    return Priced(gpu, price.low_usd_per_hour, price.slug)


def _weights(request: RecommendRequest, llm: Llm) -> tuple[WeightFormat | None, ...]:
    """The formats that are asked for; else the checkpoint's own and those that take fewer bytes."""
    if request.weights is not None:
        return tuple(dict.fromkeys(None if each == "checkpoint" else each for each in request.weights))
    own = weights_size(llm, None).num_bytes / llm.num_params
    return (None, *(each for each in NARROWER if WEIGHTS[each].bytes_per_element < own / 1.2))


def _assumptions(request: RecommendRequest, space: Space) -> list[Note]:
    names = ("engines", "kv_caches", "max_num_batched_tokens", "max_num_seqs", "redundancy_ratio", "spare_replicas", "safety_ratio")
    notes = []
    for name in names:
        if name not in request.model_fields_set:
            value = getattr(request, name)
            shown = ", ".join(map(str, value)) if isinstance(value, tuple) else plain(value)
            notes.append(Note(code=f"default_{name}", message=f"{name} was not given: {shown} is used."))
    if request.gpus is None:
        notes.append(
            Note(code="default_gpus", message=f"gpus was not given: the {len(space.accelerators)} of the catalog that have such a price.")
        )
    if request.weights is None:
        shown = ", ".join(each or "the checkpoint's own" for each in space.weights)
        notes.append(Note(code="default_weights", message=f"weights was not given: {shown}."))
    if request.max_model_len_tokens is None and space.llm.max_model_len_tokens is not None:
        message = f"max_model_len_tokens was not given: {space.llm.max_model_len_tokens}, the model's own limit, must fit."
        notes.append(Note(code="default_max_model_len_tokens", message=message))
    notes += defaults_used(request.workload, "burst_ratio", "prefix_hit_ratio", "token_growth_ratio") + length_notes(request.workload)
    notes.append(
        Note(
            code="catalog_prices",
            message=f"Prices are the lowest {PRICE_WORDS[request.price_kind]} prices of the catalog, each with its source, "
            "unless the request gives one.",
        )
    )
    return notes
