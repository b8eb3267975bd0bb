"""A load test of one replica and of its fleet: what to run, what to expect at each load, when to stop, what to record."""

from typing import Literal

from app.domain.deployment import EngineName
from app.domain.expected_latency import ExpectedLatency
from app.domain.performance_estimate import ServiceFigures
from app.domain.provenance import Answer, Basis
from app.domain.simulation_answer import SimulatedFigure, SimulatedKind, SimulatedObjective, SimulatedTimes
from app.domain.value import Value

LoadTool = Literal["vllm", "sglang", "guidellm", "aiperf"]
TestName = Literal["baseline", "ramp", "mix", "faults"]


class ToolCommand(Value):
    """One way to run a load."""

    tool: LoadTool
    """The benchmark tool."""
    command: str
    """The command line for a shell."""


class SimulatedRun(Value):
    """A load simulated step by step as the tool sends it, means over the seeds with 95 % confidence intervals.

    The intervals say what chance does between runs; `low` and `high` of the expected means say how far the step times may be off.
    """

    num_requests: int
    """Requests of one seed, about."""
    seeds: list[int]
    """Its runs; the same seed gives the same figures."""
    times: SimulatedTimes
    """P50, P95, P99 of queue, TTFT, TPOT, gaps and the whole request."""
    kinds: list[SimulatedKind]
    """The same by class of requests, where there are several."""
    request_rps: SimulatedFigure
    """Requests that finish [requests/s]."""
    output_tokens_per_s: SimulatedFigure
    """Their tokens [tokens/s]."""
    objectives: list[SimulatedObjective]
    """Each objective of the plan."""

    @property
    def holds(self) -> bool:
        """Whether the mean of every objective over the seeds is within its limit."""
        return all(each.is_within for each in self.objectives)


class RampLevel(Value):
    """One load of one replica with a constant number of requests in it."""

    concurrency: int
    """Requests in the replica at once."""
    num_requests: int
    """Requests to send."""
    expected: ServiceFigures
    """Means of the run with their ranges."""
    simulated: SimulatedRun | None
    """Percentiles of the same closed loop; None where simulating all loads would take too long."""
    expected_duration_s: float
    """Requests / expected rate [s]."""
    waits: bool
    """Whether more requests are sent than the replica has places: the rest waits."""
    is_knee: bool
    """Where throughput over time of a request is expected to be largest."""
    result_file: str
    """Name of the results file in the commands."""
    commands: list[ToolCommand]
    """Ready command lines."""


class MixPart(Value):
    """One class of requests of the mixed test: all are sent at the same time."""

    share_ratio: float
    """Share of all requests."""
    input_tokens: int
    """Prompt length [tokens]."""
    output_tokens: int
    """Output length [tokens]."""
    request_rps: float
    """Rate to one replica [requests/s]."""
    num_requests: int
    """Requests to send, so that all classes take equally long."""
    commands: list[ToolCommand]
    """Ready command lines, to run beside those of the other classes."""


class Fault(Value):
    """One fault under the load of the peak."""

    name: str
    """What goes wrong."""
    how: str
    """How it is brought about."""
    request_rps: float
    """Rate to one replica while it lasts [requests/s]."""
    expected: ExpectedLatency | None
    """Times while it lasts; None where requests outrun the replicas, so that queues grow as long as it does."""
    simulated: SimulatedRun | None
    """Percentiles of its first requests at one replica, which begins as it is at the peak; None where simulating all loads would take
    too long."""
    holds: bool
    """Whether the replicas keep up, and every objective is expected to hold meanwhile: as simulated, else as expected."""
    pass_when: str
    """What passes the test."""


class PlannedTest(Value):
    """One of the four tests."""

    name: TestName
    """Which."""
    purpose: str
    """What it finds out."""
    levels: list[RampLevel]
    """Loads in order; of the baseline and the ramp."""
    mix: list[MixPart]
    """Classes of requests; of the mixed test."""
    mix_expected: ExpectedLatency | None
    """Times over all classes at the planned rate; of the mixed test. None, too, where requests outrun the replica."""
    mix_simulated: SimulatedRun | None
    """Percentiles of all classes together and of each, Poisson arrivals at the planned rate; of the mixed test."""
    faults: list[Fault]
    """Faults in order; of the fault test."""
    not_planned_because: str | None
    """Why the test is empty."""
    stop_when: list[str]
    """What ends it early."""
    record: list[str]
    """What to write down beside the tool's own results."""


class LoadTestAnswer(Answer):
    """The four load tests of a plan."""

    model: str
    """Catalog slug, or `inline`."""
    gpu: str
    """Catalog slug, or `inline`."""
    engine: EngineName
    """The engine."""
    basis: Basis
    """Of the expected figures: calibrated or assumed."""
    replicas: int
    """Replicas of the plan."""
    replica_rps: float
    """Requests per second of one replica at the peak [requests/s]."""
    knee_concurrency: int
    """Level of the ramp at which the knee is expected."""
    max_concurrency: float
    """Requests that one replica holds at once; more wait."""
    tests: list[PlannedTest]
    """Baseline, ramp, mix and faults, in the order in which they are run."""
    expected_duration_s: float
    """Baseline and ramp together [s]."""
