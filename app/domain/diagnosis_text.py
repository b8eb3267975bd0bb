"""What a diagnosis assumed, and what to be careful about."""

from collections.abc import Sequence

from app.domain.evidence import OBJECTIVES, Evidence
from app.domain.metrics_latency import LATENCIES, PERCENTILES
from app.domain.observation import Observation
from app.domain.provenance import Note
from app.domain.units import plain, seconds


def assumptions(lines: Sequence[Evidence]) -> list[Note]:
    """What was taken for granted because the request did not say."""
    notes = [Note(code="one_engine", message="The metrics are taken to be those of one engine over one window of time.")]
    by_default = [line.metric for line in lines if line.threshold_from == "default"]
    for family, judged in (("ttft", ("ttft_", "queue_")), ("tpot", ("tpot_",))):
        if any(metric.startswith(judged) for metric in by_default):
            name = f"objective.{family}_s"
            message = (
                f"{family.upper()} ought to be at most {seconds(OBJECTIVES[name])}: a default, because the request gives neither SLO nor "
                f"baseline of what was measured; give one of them, or {name} in thresholds."
            )
            notes.append(Note(code=f"default_{family}_objective", message=message))
    return notes


def warnings(observation: Observation, lines: Sequence[Evidence]) -> list[Note]:
    """What makes the conclusion less sure than it looks."""
    notes = []
    if any(line.weak and line.held for line in lines):
        message = (
            "gpu_utilization_ratio counts time in which any kernel ran, also one that only waits for other GPUs, so a high value proves "
            "little; give sm_active_ratio and dram_active_ratio."
        )
        notes.append(Note(code="weak_metric", message=message))
    if means := sorted({line.metric for line in lines if _stands_for_its_percentiles(line.metric, observation)}):
        message = f"{', '.join(means)}: a mean hides the tail and is diluted by requests from before the problem; give percentiles."
        notes.append(Note(code="mean_instead_of_percentile", message=message))
    reported = observation.metrics.max_num_seqs
    configured = observation.deployment.max_num_seqs if observation.deployment else None
    if reported is not None and configured is not None and reported != configured:
        message = (
            f"The engine reports max_num_seqs {plain(reported)}, the deployment says {plain(configured)}; the engine's figure was used. "
            "A default of the serving layer may have replaced the setting."
        )
        notes.append(Note(code="effective_differs_from_configured", message=message))
    return notes


def _stands_for_its_percentiles(metric: str, observation: Observation) -> bool:
    """Whether a mean latency was judged because no percentile of it was measured."""
    family, _, statistic = metric.removesuffix("_s").rpartition("_")
    if statistic != "mean" or family not in LATENCIES:
        return False
    return all(observation.metrics.latency(family, each) is None for each in PERCENTILES)
