"""What the reader of a capacity answer should know: bounds, limits that cannot be held, and what the shape of the traffic means."""

from collections.abc import Sequence

from app.domain.capacity import Constraint
from app.domain.deployment import Deployment
from app.domain.expected_latency import ExpectedLatency
from app.domain.llm import Llm
from app.domain.memory_fit import Fit
from app.domain.memory_notes import memory_warnings
from app.domain.performance_notes import speed_notes
from app.domain.provenance import Note
from app.domain.replica_speed import Loaded
from app.domain.sizing import Sizing
from app.domain.units import plain, seconds
from app.domain.workload import Workload

PROMPTS_PREVAIL = 2.0
"""Mean step / decode step above which prompts take more than half of the time."""
WARN_UTILIZATION_RATIO = 0.9
"""Above this share of the capacity queues grow quickly: waiting grows with 1 / (1 - utilisation), https://doi.org/10.1002/9781119453765."""


def capacity_warnings(
    llm: Llm | None,
    workload: Workload,
    sizing: Sizing,
    constraints: Sequence[Constraint],
    found: Fit | None,
    utilization: float | None,
    deployment: Deployment,
) -> list[Note]:
    """What the answer's reader should know; `utilization` is the largest constraint over the replicas, None when none was evaluated."""
    warnings: list[Note] = memory_warnings(llm, deployment, found) if llm is not None and found is not None else []

    def warn(code: str, message: str) -> None:
        warnings.append(Note(code=code, message=message))

    if found is not None and found.verdict != "serves":
        warn(found.verdict, f"One replica does not serve ({found.verdict}, limited by {found.limiting}): no number of replicas helps.")
    longest = found.max_model_len_tokens if found is not None else None
    p95 = workload.total_tokens("p95")
    tokens = p95 or workload.total_tokens("mean") or 0
    if longest is not None and tokens > longest:
        which = "" if p95 is None else " (P95)"
        warn(
            "beyond_max_model_len",
            f"Requests of {plain(tokens)} tokens{which} are longer than max_model_len_tokens {longest}: engines refuse them.",
        )
    if any(item.basis == "bound" for item in constraints):
        warn(
            "speed_is_a_bound",
            "Speeds are physical bounds, not estimates: real engines need more replicas. Give measured figures for a plan to rely on.",
        )
    for item in constraints:
        if item.demand is not None and item.per_replica == 0:
            warn(
                f"{item.name}_unattainable",
                f"The {item.name} constraint cannot be met and takes no part in the replica count: {item.note}.",
            )
    if all(item.replicas_exact is None for item in constraints):
        warn(
            "not_sized",
            "No constraint could be evaluated, so there is no replica count. Give model and gpu, or measured figures.",
        )
    if utilization is not None and utilization > WARN_UTILIZATION_RATIO:
        warn("high_utilization", f"The fleet runs at {utilization:.0%} of its capacity: above 90 % queues grow quickly.")
    warnings += _traffic_notes(workload, sizing, deployment)
    return warnings


def modelled_warnings(sizing: Sizing, loaded: Loaded | None, expected: ExpectedLatency | None, *, is_sized: bool) -> list[Note]:
    """What the modelled speed is uncertain by, beside what `capacity_warnings` says of memory and traffic."""
    speed = sizing.speed
    if speed is None:
        return []
    notes = speed_notes(speed.performance)

    def warn(code: str, message: str) -> None:
        notes.append(Note(code=code, message=message))

    if is_sized and speed.serves and loaded is None and (sizing.simulated is None or expected is None):
        why = "What was measured says that they keep up." if sizing.measured is not None else "Their queue grows without end: add replicas."
        warn("saturated", f"As modelled, requests that arrive at random outrun these replicas: no latency is given. {why}")
    if loaded is not None and loaded.state.step_s > PROMPTS_PREVAIL * loaded.state.decode.total_s:
        warn(
            "prompts_prevail",
            "Prompts take more than half of the time at this size: TPOT may be up to 1.5 times what is said here.",
        )
    missed = [each for each in (expected.objectives if expected else ()) if each.holds and not each.holds_at_high]
    if missed:
        listed = ", ".join(f"{each.name} {seconds(each.expected_s)} of {seconds(each.limit_s)}" for each in missed)
        warn(
            "objectives_within_the_range",
            f"Expected to hold, but not at the high end of the range: {listed}. Calibrate with a measured run before relying on it.",
        )
    return notes


def _traffic_notes(workload: Workload, sizing: Sizing, deployment: Deployment) -> list[Note]:
    """What the shape of the traffic means for the plan."""
    demand, notes = sizing.demand, []
    prompt, output = demand.mean_input_tokens, demand.mean_output_tokens
    if prompt >= 4 * output:
        notes.append(
            Note(
                code="prefill_heavy",
                message=f"Prompts of {plain(prompt)} tokens against outputs of {plain(output)}: prefill is the heavy part, TTFT at risk.",
            )
        )
        if prompt >= 1000 and not workload.prefix_hit_ratio:
            notes.append(
                Note(
                    code="prefix_cache_opportunity",
                    message="Long prompts without a prefix hit ratio: common prompts or documents would come from the prefix cache.",
                )
            )
    if output >= 200 and prompt >= 4 * output:
        notes.append(
            Note(
                code="decode_not_negligible",
                message=f"{plain(output)} output tokens still hold a decode slot for most of a request's time.",
            )
        )
    if demand.p95_input_tokens is not None and demand.p95_input_tokens >= 2 * prompt:
        notes.append(
            Note(
                code="long_input_tail",
                message=(
                    f"P95 prompts of {plain(demand.p95_input_tokens)} tokens are {demand.p95_input_tokens / prompt:.3g} times the mean: "
                    "KV cache and tail latency are at risk."
                ),
            )
        )
    if demand.p95_input_tokens is None and sizing.slo is not None:
        notes.append(
            Note(code="no_percentiles", message="Objectives are percentiles but the lengths are means only: the tail is not judged.")
        )
    if deployment.speculative is not None and prompt >= 4 * output:
        notes.append(
            Note(code="speculation_helps_decode_only", message="Speculative decoding does not shorten prefill, the heavy part here.")
        )
    return notes
