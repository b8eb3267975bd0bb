"""Load tests of a plan: model its replica, lay out the four tests, write their command lines."""

import time
from typing import Annotated

from pydantic import Field
from sqlalchemy.orm import Session

from app.domain.capacity_variants import lengths_of, speed_of
from app.domain.catalog import Catalog
from app.domain.demand import demand_of
from app.domain.errors import InvalidInput, under
from app.domain.load_test import Fault, LoadTestAnswer, MixPart, PlannedTest, RampLevel, SimulatedRun
from app.domain.load_test_plan import Class, FaultLoad, Level, duration_s, expected_at, fault_of, faults_of, mix_of, ramp_levels
from app.domain.load_test_simulation import MOST_REQUESTS as MOST_SIMULATED
from app.domain.load_test_simulation import AtRate, Simulator, kinds_of_classes, level_scenario
from app.domain.performance import performance_of
from app.domain.prefix_cache import shared_prefix
from app.domain.provenance import Note, Step, step
from app.domain.replica_speed import ReplicaSpeed
from app.domain.units import plain, seconds
from app.exporters.benchmark_commands import GUIDELLM_RATES, BenchmarkRun, commands_of
from app.exporters.engine_metrics import ENGINES
from app.services.capacity import capacity
from app.services.planned_fleet import ForPlan, ServedName, planned
from app.services.references import as_deployed, engine_of, resolve_gpu, resolve_served
from app.services.simulated_scenario import kinds_of, prefix_of
from app.services.versions import versions_of

MINUTE_S = 60
MIX_S = 10 * MINUTE_S
"""How long the mixed test sends requests [s]."""
MOST_REQUESTS = 10**7
MOST_CPU_S = 2.5
"""Work of all simulations of an answer, as `expected_cpu_s` puts it [s]."""
PATIENCE_S = 30.0
"""After so long nothing more is simulated [s]."""
GAIN_RATIO = 1.05
FLUSH = {
    "vllm": "POST /reset_prefix_cache (servers started with VLLM_SERVER_DEV_MODE=1), or restart a replica.",
    "sglang": "POST /flush_cache, or restart a replica.",
}


class LoadTestRequest(ForPlan):
    """Which plan is tested, and where."""

    base_url: Annotated[str, Field(min_length=1, max_length=500, pattern=r"^https?://[A-Za-z0-9._:/\[\]-]+$")] = "http://localhost:8000"
    """Where one replica answers; the faults are sent to the load balancer."""
    served_model: ServedName | None = None
    """Name under which the model is served; its Hugging Face id when left out."""


def load_tests(session: Session, catalog: Catalog, request: LoadTestRequest) -> LoadTestAnswer:
    """The four tests with the figures expected at each load.

    Raises PlannerError as `/capacity` does, InvalidInput for a plan without model, accelerator or size, and where nothing is served.
    """
    plan = planned(session, request)
    with under(request.pointer):
        if plan.model is None or plan.gpu is None:
            missing = "model" if plan.model is None else "gpu"
            raise InvalidInput(f"the plan names no {missing}", field=f"/{missing}", expected="a plan whose replica can be modelled")
        sized = capacity(catalog, plan)
        llm, gpu = resolve_served(catalog, plan.model, plan.deployment), resolve_gpu(catalog, plan.gpu)
        deployment, _ = as_deployed(catalog, plan.deployment, llm, gpu)
        steps = catalog.calibrations.steps(catalog.step_model, llm, gpu, deployment, plan.calibration)
        demand = demand_of(plan.workload)
        lengths = lengths_of(demand, shared_prefix(plan.workload, deployment))
        engine = engine_of(catalog, deployment)
        performance = performance_of(llm, gpu, deployment, engine, steps.model, lengths, draft=deployment.draft)
        if performance.places < 1 or sized.replicas is None:
            raise InvalidInput(f"there is nothing to test: {sized.summary}", field="", expected="a plan with replicas that serve")
    speed = speed_of(performance, plan.workload, demand, plan.slo)
    rate = demand.request_rps / sized.replicas
    name = request.served_model or llm.hf_id or llm.slug
    prefix = round(lengths.prefix_hit_ratio * lengths.input_tokens)
    levels, knee = ramp_levels(performance)
    until_s = time.monotonic() + PATIENCE_S
    simulator = Simulator(speed.slo, MOST_CPU_S, lambda: time.monotonic() > until_s)
    simulated = {
        each.concurrency: simulator.run(level_scenario(performance, each.concurrency, each.num_requests, prefix)) for each in levels
    }

    def run_of(
        inputs: float, outputs: float, num: int, file: str, *, concurrency: int | None = None, rps: float | None = None
    ) -> BenchmarkRun:
        tokens = max(1, round(inputs))
        return BenchmarkRun(
            deployment.engine, name, request.base_url, tokens, max(1, round(outputs)), min(prefix, tokens - 1), num, file, concurrency, rps
        )

    def ramp_level(level: Level, test: str) -> RampLevel:
        file = f"{test}-{level.concurrency}"
        run = run_of(lengths.input_tokens, lengths.output_tokens, level.num_requests, file, concurrency=level.concurrency)
        return RampLevel(
            concurrency=level.concurrency,
            num_requests=level.num_requests,
            expected=level.figures,
            simulated=simulated[level.concurrency],
            expected_duration_s=level.num_requests / level.figures.request_rps.value,
            waits=level.concurrency > performance.places,
            is_knee=level.concurrency == knee,
            result_file=file,
            commands=commands_of(run),
        )

    def mix_part(index: int, part: Class) -> MixPart:
        part_rps = rate * part.share_ratio
        num = min(max(1, round(part_rps * MIX_S)), MOST_REQUESTS)
        run = run_of(part.input_tokens, part.output_tokens, num, f"mix-{index}", rps=part_rps)
        return MixPart(
            share_ratio=part.share_ratio,
            input_tokens=run.input_tokens,
            output_tokens=run.output_tokens,
            request_rps=part_rps,
            num_requests=num,
            commands=commands_of(run),
        )

    classes = mix_of(plan.workload)
    mix = [mix_part(index, part) for index, part in enumerate(classes, 1)]
    mix_expected = expected_at(speed, rate) if mix else None
    shared = prefix_of(plan.workload, num_prefixes=1)
    num_mixed = round(rate * MIX_S)
    mix_simulated = simulator.run(AtRate(speed, rate, kinds_of_classes(classes), shared).scenario(num_mixed)) if mix else None

    simulated_faults: dict[tuple[object, ...], SimulatedRun | None] = {}

    def fault(load: FaultLoad) -> Fault:
        """Faults that leave the replica the same traffic share a simulation."""
        key = load.request_rps, load.is_cold, load.flood_tokens
        usual_rps = load.request_rps if load.flood_tokens is None else rate
        prefix = None if load.is_cold else shared
        at_rate = AtRate(load.speed, usual_rps, kinds_of(plan.workload), prefix, rate, load.flood_tokens)
        if key not in simulated_faults:
            simulated_faults[key] = simulator.run(at_rate.scenario(MOST_SIMULATED))
        return fault_of(load, simulated_faults[key])

    flush = FLUSH.get(deployment.engine, "Restart the replicas.")
    faults = [fault(load) for load in faults_of(speed, rate, sized.replicas, plan.workload, flush)]
    record, stop = _record(speed), _stop(speed)
    no_mix = (
        None if mix else "the lengths of the plan are no two classes that keep its mean: give classes, or a P95 up to 20 times the mean"
    )
    tests = [
        _test("baseline", "The speed of one request that waits for nothing.", stop, record, levels=[ramp_level(levels[0], "baseline")]),
        _test(
            "ramp",
            "Where throughput ends, which load holds the objectives.",
            stop,
            record,
            levels=[ramp_level(x, "ramp") for x in levels],
        ),
        _test(
            "mix",
            "Whether long prompts make short ones late.",
            stop,
            record,
            mix=mix,
            mix_expected=mix_expected,
            mix_simulated=mix_simulated,
            not_planned_because=no_mix,
        ),
        _test("faults", "Whether the fleet waits, refuses or recovers, and never ends.", stop, record, faults=faults),
    ]
    held = sum(fault.holds for fault in faults)
    where = f"{llm.slug} on {deployment.num_gpus} {gpu.slug}"
    answer = LoadTestAnswer(
        summary=f"{where}: a ramp of {len(levels)} levels up to {levels[-1].concurrency} requests at once, about "
        f"{duration_s(levels) / MINUTE_S:.0f} minutes; the knee is expected at {knee}. {held} of {len(faults)} faults should hold.",
        working=_working(levels, knee, rate, demand.request_rps, sized.replicas),
        assumptions=[*sized.assumptions, *_assumptions(prefix, rates=bool(mix))],
        warnings=[*sized.warnings, *_left_out(simulator)],
        versions=versions_of(catalog),
        model=llm.slug,
        gpu=gpu.slug,
        engine=deployment.engine,
        basis=speed.basis,
        replicas=sized.replicas,
        replica_rps=rate,
        knee_concurrency=knee,
        max_concurrency=performance.places,
        tests=tests,
        expected_duration_s=duration_s([levels[0], *levels]),
    )
    return steps.warned(answer)


def _left_out(simulator: Simulator) -> list[Note]:
    if not simulator.num_left_out:
        return []
    message = (
        f"{simulator.num_left_out} loads are not simulated: together they would take more than {seconds(MOST_CPU_S)} of computing. "
        "POST /simulate simulates each (`concurrency` and `num_requests` of a level)."
    )
    return [Note(code="loads_not_simulated", message=message)]


def _test(name: str, purpose: str, stop: list[str], record: list[str], **parts: object) -> PlannedTest:
    nothing: dict[str, object] = {
        "levels": [],
        "mix": [],
        "mix_expected": None,
        "mix_simulated": None,
        "faults": [],
        "not_planned_because": None,
    }
    return PlannedTest.model_validate({"name": name, "purpose": purpose, "stop_when": stop, "record": record, **nothing, **parts})


def _stop(speed: ReplicaSpeed) -> list[str]:
    limits = [(name, limit) for name, limit in (speed.slo or ()) if limit is not None]
    return [
        "more than 1 % of the requests fail: what is measured is no longer the load that was meant",
        f"two levels in a row raise the output rate by less than {GAIN_RATIO - 1:.0%}: beyond the knee more load only waits",
        "requests are preempted at two levels in a row: more load computes the same tokens again",
        *(f"{name.removesuffix('_s')} is above {seconds(2 * limit)}, twice its objective" for name, limit in limits),
    ]


def _record(speed: ReplicaSpeed) -> list[str]:
    found = ENGINES.get(speed.performance.deployment.engine)
    own = [] if found is None else [found.running, found.waiting, *found.kv_usage[:1], found.preemptions]
    return [
        "the tool's results file of every run, three runs of each level",
        "versions of engine, driver and tool, and the engine's start-up log with the KV cache that it found",
        "accelerators: clocks, power, memory in use, DCGM_FI_PROF_PIPE_TENSOR_ACTIVE and DCGM_FI_PROF_DRAM_ACTIVE",
        *([f"of /metrics before and after every run: {', '.join(own)}"] if own else []),
        "refused, aborted and failed requests",
    ]


def _assumptions(prefix: int, *, rates: bool) -> list[Note]:
    notes = [
        Note(
            code="equal_lengths",
            message="Baseline and ramp send requests of the mean length, one thing changing at a time; the mixed test spreads them.",
        ),
        Note(
            code="closed_loop",
            message="A level keeps as many requests in flight; the figures are means of its whole run, its start included. Requests of "
            "equal length fall into step: where prompts then arrive together, simulated TTFT is above the mean of the closed form.",
        ),
    ]
    message = (
        f"Percentiles are simulated: a level as its tool sends it, Poisson arrivals at one replica for at most "
        f"{MOST_SIMULATED} requests of each seed."
    )
    notes.append(Note(code="simulated_percentiles", message=message))
    if rates:
        notes.append(Note(code="guidellm_rates", message=GUIDELLM_RATES))
    if prefix:
        message = f"Every prompt begins with the same {prefix} tokens, the share that the plan expects to find in the prefix cache."
        notes.append(Note(code="one_shared_prefix", message=message))
    return notes


def _working(levels: list[Level], knee: int, rate: float, request_rps: float, replicas: int) -> list[Step]:
    source = "POST /performance gives the parts of every level"
    at = next(level for level in levels if level.concurrency == knee)
    return [
        step(
            "replica_rps",
            "request_rps / replicas",
            f"{plain(request_rps)} / {replicas}",
            rate,
            "requests/s",
            "POST /capacity with the plan",
        ),
        step(
            "knee_concurrency",
            "level of largest request_rps / e2e_s",
            f"{plain(at.state.request_rps)} / {plain(at.state.e2e_s)} = {plain(at.state.request_rps / at.state.e2e_s)}",
            knee,
            "requests",
            source,
            basis="assumed",
        ),
    ]
