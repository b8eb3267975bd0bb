"""What differs between how the engine ran in the baseline and how it runs now: what both have in common explains no difference."""

from collections.abc import Callable, Mapping

from app.domain.deployment import Deployment
from app.domain.observation import Absent, Observation, Reading, Sight, Symptom, quotient, single
from app.domain.symptoms_graphs import GRAPH_SYMPTOMS
from app.domain.symptoms_host import FULL_WIDTH

Setting = Callable[[Deployment], bool]
BOTH = ("deployment", "baseline_deployment")

SETTINGS: Mapping[str, Setting] = {
    "adapters_added": lambda deployment: deployment.lora is not None,
    "cache_quantisation_added": lambda deployment: deployment.kv_cache not in FULL_WIDTH,
    "chunked_prefill_removed": lambda deployment: not deployment.chunked_prefill,
    "prefix_caching_removed": lambda deployment: not deployment.prefix_caching,
    "speculation_added": lambda deployment: deployment.speculative is not None,
    "weight_quantisation_added": lambda deployment: deployment.weights is not None and deployment.weights not in FULL_WIDTH,
}
"""Symptoms that are 1 where this holds of the deployment and did not hold of the baseline's, else 0."""


def _pair(observation: Observation) -> tuple[Deployment, Deployment] | Absent:
    """The deployment and that of the baseline; missing where either is not given."""
    now, before = observation.deployment, observation.baseline_deployment
    if now is None or before is None:
        return Absent(tuple(name for name, given in zip(BOTH, (now, before), strict=True) if given is None))
    return now, before


def _added(name: str, holds: Setting) -> Symptom:
    def sight(observation: Observation) -> Sight:
        pair = _pair(observation)
        if isinstance(pair, Absent):
            return pair
        return (Reading(name, float(holds(pair[0]) and not holds(pair[1]))),)

    return sight


def _num_changed(observation: Observation) -> Sight:
    """Fields in which both deployments differ."""
    pair = _pair(observation)
    if isinstance(pair, Absent):
        return pair
    differing = [name for name in Deployment.model_fields if getattr(pair[0], name) != getattr(pair[1], name)]
    return (Reading("num_changed_settings", float(len(differing))),)


def _tensor_parallel_growth(observation: Observation) -> Sight:
    """Ranks of a replica now / in the baseline."""
    pair = _pair(observation)
    if isinstance(pair, Absent):
        return pair
    over, under = (float(each.tp) for each in pair)
    return single(quotient("tensor_parallel_growth_ratio", ("deployment.tp", over), ("baseline_deployment.tp", under)))


def _graphs_missing_as_before(observation: Observation) -> Sight:
    """1 when steps ran without CUDA graphs in the baseline as well as now, by what was measured of it or said of its deployment."""
    before = observation.before
    if before is None:
        return Absent(("baseline",))
    measured = (before.metrics.max_cuda_graph_batch_size, before.metrics.cuda_graph_step_ratio)
    if observation.baseline_deployment is None and all(each is None for each in measured):
        return Absent(("baseline_deployment",))
    disabled = GRAPH_SYMPTOMS["cuda_graphs_disabled"]
    sights = [disabled(each) for each in (observation, before)]
    missing = tuple(name for sight in sights if isinstance(sight, Absent) for name in sight.missing)
    if missing:
        return Absent(missing)
    both = all(reading.value for sight in sights if not isinstance(sight, Absent) for reading in sight)
    return (Reading("graphs_missing_as_before", float(both)),)


CHANGE_SYMPTOMS: Mapping[str, Symptom] = {
    **{name: _added(name, holds) for name, holds in SETTINGS.items()},
    "num_changed_settings": _num_changed,
    "tensor_parallel_growth_ratio": _tensor_parallel_growth,
    "graphs_missing_as_before": _graphs_missing_as_before,
}
"""Symptoms of this module by name."""
