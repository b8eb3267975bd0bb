"""A load test of one replica and of its fleet: what to run, what to expect at each load, when to stop, what to record."""

from typing import Literal

from app.domain.deployment import EngineName
from app.domain.expected_latency import ExpectedLatency
from app.domain.performance_estimate import ServiceFigures
from app.domain.provenance import Answer, Basis
from app.domain.value import Value

LoadTool = Literal["vllm", "sglang", "guidellm", "aiperf"]
TestName = Literal["baseline", "ramp", "mix", "faults"]


class ToolCommand(Value):
    """One way to run a load."""

    tool: LoadTool
    """The benchmark tool."""
    command: str
    """The command line for a shell."""


class RampLevel(Value):
    """One load of one replica with a constant number of requests in it."""

    concurrency: int
    """Requests in the replica at once."""
    num_requests: int
    """Requests to send."""
    expected: ServiceFigures
    """Means of the run with their ranges."""
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
    holds: bool
    """Whether every objective is expected to hold meanwhile; without objectives, whether the replicas keep up."""
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
