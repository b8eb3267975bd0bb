"""What flows through an engine: requests that wait and run, prompt and output tokens, by what was counted or else by Little's law."""

from collections.abc import Callable, Mapping

from app.domain.observation import Absent, Observation, Sight, Symptom, quotient, single
from app.domain.symptoms_batch import BATCH_SYMPTOMS
from app.domain.symptoms_host import HOST_SYMPTOMS
from app.domain.symptoms_limits import Named, absent, budget, computed, first_known, mean_input, step_time
from app.domain.symptoms_slowdown import SLOWDOWN_SYMPTOMS

UTILISATION = "arithmetic on the metrics given (utilisation law)"
LITTLE = "arithmetic on the metrics given (Little's law)"


def _waiting_to_running(observation: Observation) -> Sight:
    """Waiting / running requests: by Little's law the time in the queue / the time in service.

    Without the running ones, / the cap on them: a lower bound.
    """
    metrics = observation.metrics
    running: Named = ("num_running_requests", metrics.num_running_requests)
    if running[1] is None and observation.max_num_seqs is not None:
        running = ("max_num_seqs", observation.max_num_seqs)
    return single(quotient("waiting_to_running_ratio", ("num_waiting_requests", metrics.num_waiting_requests), running))


def _held_by_engine(observation: Observation) -> Sight:
    """(Running + waiting requests) / requests in flight as the client counts them: the rest is at the client, in a proxy, or prepared."""
    metrics = observation.metrics
    running, waiting = metrics.num_running_requests, metrics.num_waiting_requests
    if running is None or waiting is None:
        parts = (("num_running_requests", running), ("num_waiting_requests", waiting))
        return Absent(tuple(name for name, value in parts if value is None))
    held: Named = ("num_running_requests + num_waiting_requests", running + waiting)
    return single(quotient("engine_share_of_in_flight_ratio", held, ("num_concurrent_requests", metrics.num_concurrent_requests)))


def _cap_use(observation: Observation) -> Sight:
    """Running requests / cap on them; where they were not counted, those in flight up to the cap / cap, as if nothing else held them."""
    metrics, cap = observation.metrics, observation.max_num_seqs
    busy: Named = ("num_running_requests", metrics.num_running_requests)
    demand = first_known(metrics, "num_concurrent_requests", "num_waiting_requests")
    if busy[1] is None and demand[1] is not None and cap is not None:
        busy = (f"min({demand[0]}, max_num_seqs)", min(demand[1], cap))
    return single(quotient("cap_use_ratio", busy, ("max_num_seqs", cap)))


def _stream_time(observation: Observation) -> Sight:
    """Running sequences / tokens per second: mean time between two tokens of a stream [s], where neither TPOT nor ITL was measured.

    Sequences whose prompt is being processed count as running, so that it is an upper bound.
    """
    metrics = observation.metrics
    measured = [name for name in metrics.measured() if name.startswith(("tpot_", "itl_"))]
    running, rate = ("num_running_requests", metrics.num_running_requests), ("output_tokens_per_s", metrics.output_tokens_per_s)
    if measured or running[1] is None or rate[1] is None:
        return Absent(("tpot_p95_s",))
    return single(quotient("stream_time_per_token_s", running, rate, statistic="mean"))


def _input_to_output(observation: Observation) -> Sight:
    """Prompt tokens per token generated: by the rates, else by the mean lengths, else by request rate and pace of the streams."""
    metrics = observation.metrics
    prompt: Named = ("input_tokens_per_s", metrics.input_tokens_per_s)
    generated: Named = ("output_tokens_per_s", metrics.output_tokens_per_s)
    if prompt[1] is not None and generated[1] is not None:
        return single(quotient("input_to_output_ratio", prompt, generated))
    length = mean_input(observation)
    if length[1] is not None and metrics.output_mean_tokens is not None:
        return single(quotient("input_to_output_ratio", length, ("output_mean_tokens", metrics.output_mean_tokens)))
    rate = first_known(metrics, "request_rps", "offered_rps")
    pace = first_known(metrics, "itl_mean_s", "itl_p50_s", "tpot_mean_s", "tpot_p50_s")
    running: Named = ("num_running_requests", metrics.num_running_requests)
    if rate[1] is None or length[1] is None or pace[1] is None or not running[1]:
        return Absent(tuple(name for name, value in (prompt, generated) if value is None))
    value = rate[1] * length[1] * pace[1] / running[1]
    return (computed("input_to_output_ratio", "{} x {} x {} / {}", (rate, length, pace, running), value, source=LITTLE),)


def _prompt_rate_slowdown(observation: Observation) -> Sight:
    """Prompt tokens per second before / now."""
    before, now = observation.earlier("input_tokens_per_s"), observation.metrics.input_tokens_per_s
    return single(quotient("prompt_rate_slowdown_ratio", ("baseline.input_tokens_per_s", before), ("input_tokens_per_s", now)))


def _kv_load_time(observation: Observation) -> Named:
    return first_known(observation.metrics, "kv_load_time_mean_s", "kv_load_time_p50_s")


def _kv_load_use(observation: Observation) -> Sight:
    """Fetching of KV cache [s] x requests per second: 1 when a link that serves one fetch at a time has no pause left."""
    seconds, rate = _kv_load_time(observation), ("request_rps", observation.metrics.request_rps)
    if seconds[1] is None or rate[1] is None:
        return absent(seconds, rate)
    return (computed("kv_load_use_ratio", "{} x {}", (seconds, rate), seconds[1] * rate[1], source=UTILISATION),)


def _kv_loads_in_line(observation: Observation) -> Sight:
    """Fetches of all requests in flight, one after the other, / TTFT: near 1, each waits for those before it."""
    seconds, metrics = _kv_load_time(observation), observation.metrics
    requests = first_known(metrics, "num_concurrent_requests", "num_running_requests")
    ttft = first_known(metrics, "ttft_p99_s", "ttft_p95_s", "ttft_p90_s", "ttft_mean_s", "ttft_p50_s")
    parts = (requests, seconds, ttft)
    if requests[1] is None or seconds[1] is None or ttft[1] is None:
        return absent(*parts)
    value = requests[1] * seconds[1] / ttft[1] if ttft[1] else 0.0
    return (computed("kv_loads_in_line_ratio", "{} x {} / {}", parts, value),)


def _prompts_in_line(observation: Observation) -> Sight:
    """Steps that read the prompts in flight at the tokens that a step was seen to take, x its duration, / the longest known wait.

    The wait is that in the queue, else TTFT. Near 1 the wait is the reading of the prompts ahead.
    """
    metrics = observation.metrics
    requests = first_known(metrics, "num_concurrent_requests", "num_waiting_requests")
    late = first_known(metrics, "queue_time_p99_s", "queue_time_p95_s", "queue_time_p90_s", "ttft_p99_s", "ttft_p95_s", "ttft_p90_s")
    prompt, taken, step = mean_input(observation), ("tokens_per_step", metrics.tokens_per_step), step_time(metrics)
    parts = (requests, prompt, taken, step, late)
    (_, number), (_, length), (_, tokens), (_, seconds), (_, wait) = parts
    if number is None or length is None or tokens is None or seconds is None or wait is None:
        return absent(*parts)
    value = number * length / tokens * seconds / wait if tokens and wait else 0.0
    return (computed("prompts_in_line_ratio", "{} x {} / {} x {} / {}", parts, value),)


def _longest_to(name: str, other: Callable[[Observation], Named]) -> Symptom:
    """Longest known prompt / a size of the engine."""

    def sight(observation: Observation) -> Sight:
        longest = HOST_SYMPTOMS["longest_input_tokens"](observation)
        if isinstance(longest, Absent):
            return longest
        return single(quotient(name, (longest[0].name, longest[0].value), other(observation)))

    return sight


def _beyond_idleness(observation: Observation) -> Sight:
    """Slowdown that would remain if the accelerators were as busy as before: slowdown x busy share now / before."""
    busy = [BATCH_SYMPTOMS["gpu_busy_ratio"](each) for each in (observation, observation.before) if each is not None]
    slower = SLOWDOWN_SYMPTOMS["throughput_slowdown_ratio"](observation)
    if isinstance(slower, Absent):
        return slower
    if len(busy) < 2 or any(isinstance(sight, Absent) for sight in busy):
        return Absent(("baseline.sm_active_ratio",))
    now, before = (sight[0] for sight in busy if not isinstance(sight, Absent))
    if now.name != before.name or not before.value:
        return Absent((f"baseline.{now.name}",))
    parts = (("throughput_slowdown_ratio", slower[0].value), (now.name, now.value), (f"earlier {now.name}", before.value))
    return (computed("slowdown_without_idleness_ratio", "{} x {} / {}", parts, slower[0].value * now.value / before.value),)


FLOW_SYMPTOMS: Mapping[str, Symptom] = {
    "waiting_to_running_ratio": _waiting_to_running,
    "cap_use_ratio": _cap_use,
    "engine_share_of_in_flight_ratio": _held_by_engine,
    "stream_time_per_token_s": _stream_time,
    "input_to_output_ratio": _input_to_output,
    "prompt_rate_slowdown_ratio": _prompt_rate_slowdown,
    "kv_load_use_ratio": _kv_load_use,
    "kv_loads_in_line_ratio": _kv_loads_in_line,
    "prompts_in_line_ratio": _prompts_in_line,
    "longest_prompt_to_budget_ratio": _longest_to("longest_prompt_to_budget_ratio", budget),
    "longest_prompt_to_kv_cache_ratio": _longest_to(
        "longest_prompt_to_kv_cache_ratio", lambda seen: ("num_kv_cache_tokens", seen.metrics.num_kv_cache_tokens)
    ),
    "slowdown_without_idleness_ratio": _beyond_idleness,
}
"""Symptoms of this module by name."""
