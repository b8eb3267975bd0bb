"""What tokens, requests and tasks cost at a given hourly price and throughput."""

from app.domain.cost_split import CostSplit
from app.domain.provenance import Answer, Note, Step, Versions, step
from app.domain.units import exact, plain, tidy
from app.domain.value import Value
from app.domain.workload import Rps, TokensPerS

HOURS_PER_MONTH = 730
"""365 x 24 / 12 hours, the month that cloud price lists use (https://aws.amazon.com/ec2/pricing/on-demand/)."""
SOURCE = "definition: cost per token = price per second / tokens per second"


class Throughput(Value):
    """What one replica sustains."""

    output_tokens_per_s: TokensPerS | None = None
    """Output tokens per second of one replica [tokens/s]."""
    input_tokens_per_s: TokensPerS | None = None
    """Input tokens per second of one replica [tokens/s]."""
    request_rps: Rps | None = None
    """Finished requests per second of one replica [requests/s]."""


class CostAnswer(Answer):
    """Unit costs; None where the request does not say what they need."""

    replicas: int
    """Replicas that are paid for."""
    usd_per_hour: float
    """Price of the fleet [USD/hour]."""
    usd_per_month: float
    """Price of the fleet in a month of 730 hours [USD]."""
    output_tokens_per_hour: float | None
    """Output tokens of the fleet in an hour."""
    input_tokens_per_hour: float | None
    """Input tokens of the fleet in an hour."""
    split: CostSplit | None
    """Shares of the price that input and output carry; None where no replica is modelled, and each figure carries the whole price."""
    usd_per_million_input_tokens: float | None
    """The price, or the share of it that is the prompts', divided by the input tokens, cached ones too [USD]."""
    usd_per_million_output_tokens: float | None
    """The price, or the share of it that is decoding's, divided by the output tokens [USD]."""
    usd_per_million_blended_tokens: float | None
    """The whole price divided by input and output tokens together [USD]."""
    usd_per_request: float | None
    """Price per request, successful or not [USD]."""
    usd_per_successful_request: float | None
    """usd_per_request / success_ratio [USD]."""
    usd_per_task: float | None
    """usd_per_request x requests_per_task x attempts_per_task / success_ratio [USD]."""


def usd_per_million(usd_per_hour: float, tokens_per_s: float) -> float:
    """Price of a million tokens: usd_per_hour / (tokens_per_s x 3600) x 1e6 [USD].

    >>> round(usd_per_million(20, 8000), 6)
    0.694444
    """
    return usd_per_hour / (tokens_per_s * 3600) * 1e6


def answer_cost(
    *,
    replica_usd_per_hour: float,
    replicas: int,
    price_steps: list[Step],
    throughput: Throughput,
    mean_input_tokens: float | None,
    mean_output_tokens: float | None,
    split: tuple[CostSplit, list[Step]] | None = None,
    success_ratio: float,
    requests_per_task: float,
    attempts_per_task: float,
    assumptions: list[Note],
    warnings: list[Note],
    versions: Versions,
) -> CostAnswer:
    """Unit costs of a fleet that runs at its throughput all the time.

    usd/M tokens = usd_per_hour / (tokens_per_s x 3600) x 1e6; usd/request = usd_per_hour / (rps x 3600). Rates are per replica [1/s],
    prices in USD. With a `split` (`cost_split`) input and output tokens carry their shares of the price, and add up to it; without one
    each carries the whole. Idle hours are not in it: at half the load every unit costs twice as much.
    """
    hourly = tidy(replica_usd_per_hour * replicas)
    outputs, inputs, rps = _rates(throughput, replicas, mean_input_tokens, mean_output_tokens)
    per_request = hourly / (rps * 3600) if rps else None
    steps = [*price_steps, _step("usd_per_hour", "replica_usd_per_hour x replicas", f"{plain(replica_usd_per_hour)} x {replicas}", hourly)]
    steps += _rate_steps(throughput, replicas, mean_input_tokens, mean_output_tokens, (outputs, inputs, rps))

    steps += split[1] if split else []

    def per_million(name: str, rate: float | None, share: str | None = None) -> float | None:
        if rate is None:
            return None
        ratio = getattr(split[0], share) if split and share else None
        value = usd_per_million(hourly, rate) * (1 if ratio is None else ratio)
        formula, terms = "usd_per_hour / (tokens_per_s x 3600) x 1e6", f"{plain(hourly)} / ({plain(rate)} x 3600) x 1e6"
        if ratio is not None:
            formula, terms = f"{formula} x {share}", f"{terms} x {plain(ratio)}"
        steps.append(_step(name, formula, terms, value))
        return value

    per_input = per_million("usd_per_million_input_tokens", inputs, "input_time_ratio")
    per_output = per_million("usd_per_million_output_tokens", outputs, "output_time_ratio")
    blended = per_million("usd_per_million_blended_tokens", inputs + outputs if inputs and outputs else None)
    success = task = None
    if per_request is not None and rps is not None:
        success = per_request / success_ratio
        task = per_request * requests_per_task * attempts_per_task / success_ratio
        steps += [
            _step("usd_per_request", "usd_per_hour / (request_rps x 3600)", f"{plain(hourly)} / ({plain(rps)} x 3600)", per_request),
            _step(
                "usd_per_successful_request", "usd_per_request / success_ratio", f"{plain(per_request)} / {plain(success_ratio)}", success
            ),
            _step(
                "usd_per_task",
                "usd_per_request x requests_per_task x attempts_per_task / success_ratio",
                f"{plain(per_request)} x {plain(requests_per_task)} x {plain(attempts_per_task)} / {plain(success_ratio)}",
                task,
            ),
        ]
    contradiction = _contradiction(throughput, mean_input_tokens, mean_output_tokens)
    monthly = tidy(hourly * HOURS_PER_MONTH)
    steps.append(_step("usd_per_month", "usd_per_hour x 730", f"{plain(hourly)} x {HOURS_PER_MONTH}", monthly))
    return CostAnswer(
        summary=_summary(replicas, hourly, monthly, per_input if split else None, per_output, blended, per_request),
        working=steps,
        assumptions=assumptions,
        warnings=[*_warnings(inputs, outputs, split[0] if split else None), *([contradiction] if contradiction else []), *warnings],
        versions=versions,
        replicas=replicas,
        usd_per_hour=hourly,
        usd_per_month=monthly,
        output_tokens_per_hour=None if outputs is None else exact(tidy(outputs * 3600)),
        input_tokens_per_hour=None if inputs is None else exact(tidy(inputs * 3600)),
        split=split[0] if split else None,
        usd_per_million_input_tokens=per_input,
        usd_per_million_output_tokens=per_output,
        usd_per_million_blended_tokens=blended,
        usd_per_request=per_request,
        usd_per_successful_request=success,
        usd_per_task=task,
    )


def replica_rps(throughput: Throughput, mean_input: float | None, mean_output: float | None) -> float | None:
    """Requests per second of one replica: as given, else token rate / mean tokens; None where neither tells it [requests/s]."""
    if throughput.request_rps is not None:
        return throughput.request_rps
    if throughput.output_tokens_per_s and mean_output:
        return throughput.output_tokens_per_s / mean_output
    if throughput.input_tokens_per_s and mean_input:
        return throughput.input_tokens_per_s / mean_input
    return None


def _rates(
    throughput: Throughput, replicas: int, mean_input: float | None, mean_output: float | None
) -> tuple[float | None, float | None, float | None]:
    """Fleet rates of output tokens, input tokens and requests; missing ones follow from the request lengths where those are given."""
    outputs, inputs = throughput.output_tokens_per_s, throughput.input_tokens_per_s
    rps = replica_rps(throughput, mean_input, mean_output)
    if outputs is None and rps and mean_output:
        outputs = rps * mean_output
    if inputs is None and rps and mean_input:
        inputs = rps * mean_input
    return (
        None if outputs is None else tidy(outputs * replicas),
        None if inputs is None else tidy(inputs * replicas),
        None if rps is None else tidy(rps * replicas),
    )


def _rate_steps(
    throughput: Throughput,
    replicas: int,
    mean_input: float | None,
    mean_output: float | None,
    fleet: tuple[float | None, float | None, float | None],
) -> list[Step]:
    """The working of the fleet's rates, mirroring `_rates`."""
    outputs, inputs, rps = fleet
    steps = []

    def add(name: str, formula: str, substituted: str, value: float, unit: str) -> None:
        steps.append(step(name, f"{formula} x replicas", f"{substituted} x {replicas}", value, unit, "definition of the rates"))

    if rps is not None and throughput.request_rps is not None:
        add("request_rps", "request_rps of one replica", plain(throughput.request_rps), rps, "requests/s")
    elif rps is not None:
        which, rate, mean = ("output", throughput.output_tokens_per_s, mean_output)
        if not (rate and mean):
            which, rate, mean = "input", throughput.input_tokens_per_s, mean_input
        add("request_rps", f"{which}_tokens_per_s / mean {which} tokens", f"{plain(rate or 0)} / {plain(mean or 1)}", rps, "requests/s")
    for which, value, rate, mean in (
        ("output", outputs, throughput.output_tokens_per_s, mean_output),
        ("input", inputs, throughput.input_tokens_per_s, mean_input),
    ):
        if value is not None and rate is not None:
            add(f"{which}_tokens_per_s", f"{which}_tokens_per_s of one replica", plain(rate), value, "tokens/s")
        elif value is not None and rps is not None and mean is not None:
            formula = f"request_rps x mean {which} tokens"
            terms = f"{plain(rps)} x {plain(mean)}"
            steps.append(step(f"{which}_tokens_per_s", formula, terms, value, "tokens/s", "definition of the rates"))
    return steps


def _contradiction(throughput: Throughput, mean_input: float | None, mean_output: float | None) -> Note | None:
    """Rates of one replica that the lengths of the workload contradict by more than 1 %."""
    outputs, inputs, rps = throughput.output_tokens_per_s, throughput.input_tokens_per_s, throughput.request_rps
    shares = []
    if rps is not None:
        shares.append(rps)
    if outputs is not None and mean_output is not None:
        shares.append(outputs / mean_output)
    if inputs is not None and mean_input is not None:
        shares.append(inputs / mean_input)
    if len(shares) < 2 or max(shares) <= 1.01 * min(shares):
        return None
    rates = ", ".join(plain(rate) for rate in shares)
    return Note(
        code="rates_contradict_lengths",
        message=f"The rates and mean lengths given mean {rates} requests/s each way: they are not of the same traffic.",
    )


def _step(name: str, formula: str, substituted: str, value: float) -> Step:
    return step(name, formula, substituted, value, "USD", SOURCE)


def _summary(
    replicas: int,
    hourly: float,
    monthly: float,
    per_input: float | None,
    per_output: float | None,
    blended: float | None,
    per_request: float | None,
) -> str:
    fleet = "One replica costs" if replicas == 1 else f"{replicas} replicas cost"
    parts = [f"{fleet} ${hourly:,.2f} per hour (${monthly:,.0f} per month)"]
    if per_input is not None:
        parts.append(f"${per_input:.3g} per million input tokens")
    if per_output is not None:
        parts.append(f"${per_output:.3g} per million output tokens")
    if blended is not None:
        parts.append(f"${blended:.3g} per million tokens of either kind")
    if per_request is not None:
        parts.append(f"${per_request:.3g} per request")
    return ", ".join(parts) + ", while the rate is sustained."


def _warnings(inputs: float | None, outputs: float | None, split: CostSplit | None) -> list[Note]:
    warnings = [Note(code="full_load", message="Unit costs hold while the throughput is sustained; idle hours make every unit dearer.")]
    if split is not None:
        if split.saturated:
            message = (
                f"The replica is modelled to end {split.request_rps:.3g} requests/s, less than the rate: the price is split as there, "
                "and the units are cheaper than such a replica makes them."
            )
            warnings.append(Note(code="above_modelled_rate", message=message))
    elif inputs is not None and outputs is not None:
        warnings.append(
            Note(
                code="cost_not_split",
                message=(
                    "Input and output figures each carry the whole price and cannot be added; the blended figure is for both together. "
                    "They are split by the time of the steps where model, gpu, a deployment with its engine and a workload are given."
                ),
            )
        )
    elif inputs is None and outputs is None:
        warnings.append(Note(code="no_throughput", message="No throughput is given: only the price of the fleet can be told."))
    return warnings
