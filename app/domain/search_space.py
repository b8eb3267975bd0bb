"""The deployments that a search looks at: accelerators, precisions, layouts and engine settings."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, NamedTuple

from app.domain.deployment import Deployment, EngineName, check_layout
from app.domain.engine import EngineMemory
from app.domain.engine_defaults import with_engine_cache
from app.domain.errors import InvalidInput
from app.domain.hardware import Gpu
from app.domain.kv_cache import kv_is_known, resolve_kv_format
from app.domain.llm import Llm
from app.domain.precision import KvChoice, WeightFormat
from app.domain.precision_support import cache_refusal, weights_refusal
from app.domain.weight_schemes import native_scheme

Reason = Literal[
    "no_price",
    "weights_unsupported",
    "kv_cache_unsupported",
    "layout_impossible",
    "figure_missing",
    "does_not_fit",
    "max_model_len",
    "ttft_missed",
    "tpot_missed",
    "e2e_missed",
    "overloaded",
    "fewer_places",
    "same_cache",
]


class Setting(NamedTuple):
    """Limits of the engine's scheduler."""

    max_num_batched_tokens: int
    max_num_seqs: int


class Priced(NamedTuple):
    """An accelerator and what it costs."""

    gpu: Gpu
    usd_per_gpu_hour: float | None
    """None where nobody knows it."""
    source: str
    """Where the price comes from."""


class Family(NamedTuple):
    """Deployments that differ in the settings of the engine only."""

    priced: Priced
    deployment: Deployment
    """Without those settings."""

    @property
    def name(self) -> str:
        """The family for people."""
        deployment = self.deployment
        parts = [f"{name} {degree}" for name in ("tp", "pp", "dp", "ep") if (degree := getattr(deployment, name)) > 1] or ["tp 1"]
        cache = "" if deployment.kv_cache == "auto" else f", {deployment.kv_cache} cache"
        weights = deployment.weights or "the checkpoint's own"
        return f"{self.priced.gpu.slug}, {deployment.engine}, {' '.join(parts)}, {weights} weights{cache}"

    @property
    def usd_per_replica_hour(self) -> float:
        """Accelerators of one replica x their price [USD/hour]; families without a price are refused before."""
        return self.deployment.num_gpus * (self.priced.usd_per_gpu_hour or 0.0)


@dataclass
class Refusals:
    """Candidates that are not recommended, counted by reason, with the first of each."""

    counts: dict[Reason, int] = field(default_factory=dict)
    examples: dict[Reason, str] = field(default_factory=dict)

    def add(self, reason: Reason, num_candidates: int, example: str | Callable[[], str]) -> None:
        """Count candidates; a sentence that takes time to write is only written for the first."""
        if not num_candidates:
            return
        self.counts[reason] = self.counts.get(reason, 0) + num_candidates
        if reason not in self.examples:
            self.examples[reason] = example if isinstance(example, str) else example()


@dataclass(frozen=True)
class Space:
    """What is combined with what."""

    llm: Llm
    accelerators: Sequence[Priced]
    template: Deployment
    """Fields that all candidates share."""
    engines: Sequence[EngineName]
    weights: Sequence[WeightFormat | None]
    """None is the checkpoint's own."""
    kv_caches: Sequence[KvChoice]
    settings: Sequence[Setting]
    max_gpus_per_replica: int
    memory: Mapping[str, EngineMemory | None] = field(default_factory=dict)
    """Memory accounting of the engines, which decides on the cache of `auto`."""

    @cached_property
    def layouts(self) -> tuple[list[Deployment], list[str]]:
        """(layouts that the model can be split into, why others are refused); degrees are powers of two.

        dp shares the experts of a model among replicas of its attention; without experts it is no different from more replicas.
        """
        possible, refused = [], []
        for tp, pp, dp in self._degrees():
            for ep in (1, tp * dp) if self.llm.num_expert_params and tp * dp > 1 else (1,):
                deployment = self.template.model_copy(update={"tp": tp, "pp": pp, "dp": dp, "ep": ep})
                try:
                    check_layout(self.llm, deployment)
                except InvalidInput as error:
                    refused.append(error.detail)
                else:
                    possible.append(deployment)
        return possible, refused

    def _degrees(self) -> Iterator[tuple[int, int, int]]:
        powers = [2**exponent for exponent in range(self.max_gpus_per_replica.bit_length())]
        for tp in powers:
            for pp in powers:
                for dp in powers if self.llm.num_expert_params else [1]:
                    if tp * pp * dp <= self.max_gpus_per_replica:
                        yield tp, pp, dp

    @property
    def num_candidates(self) -> int:
        """All combinations, the impossible ones too."""
        layouts = len(self.layouts[0]) + len(self.layouts[1])
        return len(self.accelerators) * len(self.engines) * len(self._precisions) * layouts * len(self.settings)

    @cached_property
    def _precisions(self) -> list[tuple[WeightFormat | None, KvChoice]]:
        """Weights and caches; a cache that is what the engine chooses anyway counts once."""
        auto = resolve_kv_format(self.llm, "auto") if kv_is_known(self.llm) else None
        caches = [cache for cache in self.kv_caches if cache != auto or "auto" not in self.kv_caches]
        return [(weights, cache) for weights in self.weights for cache in caches]

    def families(self, refusals: Refusals) -> Iterator[Family]:
        """Families that nothing known beforehand speaks against; the others are counted."""
        layouts, impossible = self.layouts
        each = len(self.settings)
        native = native_scheme(self.llm)
        for priced in self.accelerators:
            whole = len(self.engines) * len(self._precisions) * (len(layouts) + len(impossible)) * each
            if priced.usd_per_gpu_hour is None:
                slug = priced.gpu.slug
                refusals.add("no_price", whole, f"the catalog has no price for {slug}, and the request gives none")
                continue
            for engine in self.engines:
                for weights, cache in self._precisions:
                    share = (len(layouts) + len(impossible)) * each
                    stored = weights or (native.name.split()[0] if native else "")
                    if (why := weights_refusal(priced.gpu, stored)) is not None:
                        refusals.add("weights_unsupported", share, why)
                        continue
                    if cache != "auto" and (why := cache_refusal(priced.gpu, cache)) is not None:
                        refusals.add("kv_cache_unsupported", share, why)
                        continue
                    taken = self._cache(engine, weights, cache, priced.gpu)
                    if taken != cache and (weights, taken) in self._precisions:
                        refusals.add("same_cache", share, f"{engine} on {priced.gpu.slug} takes {taken} for {cache}, asked for too")
                        continue
                    refusals.add("layout_impossible", len(impossible) * each, impossible[0] if impossible else "")
                    changes = {"engine": engine, "weights": weights, "kv_cache": taken}
                    for layout in layouts:
                        yield Family(priced, layout.model_copy(update=changes))

    def _cache(self, engine: EngineName, weights: WeightFormat | None, cache: KvChoice, gpu: Gpu) -> KvChoice:
        """The cache that the engine takes on the accelerator, as `/capacity` plans it."""
        deployment = self.template.model_copy(update={"engine": engine, "weights": weights, "kv_cache": cache})
        return with_engine_cache(deployment, self.memory.get(engine), self.llm, gpu)[0].kv_cache
