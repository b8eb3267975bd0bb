"""The body of `/simulate`: a fleet, its traffic, its clients, and what goes wrong."""

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field, model_validator

from app.domain.batching import Batching
from app.domain.calibration import CalibrationChoice
from app.domain.deployment import Deployment
from app.domain.simulation_pool import Balancing
from app.domain.simulation_scheduler import SchedulerSettings
from app.domain.value import Given
from app.domain.workload import Rps, Slo, Workload
from app.services.requests import GpuRef, ModelRef

Moment = Annotated[float, Field(ge=0, le=1e6)]
Span = Annotated[float, Field(ge=1e-3, le=1e6)]
Count = Annotated[int, Field(ge=1, le=10**7)]
Replicas = Annotated[int, Field(ge=1, le=1000)]
PoolName = Annotated[str, Field(min_length=1, max_length=50)] | None
RequestTokens = Annotated[int, Field(ge=1, le=10**9)]


class PoolOfReplicas(Given):
    """Replicas of one deployment, and the requests that go to them."""

    name: Annotated[str, Field(min_length=1, max_length=50)]
    """Its name in the answer and for faults."""
    gpu: GpuRef | None = None
    """Its accelerator; that of the request when left out."""
    deployment: Deployment | None = None
    """How one of its replicas runs; as in the request when left out."""
    replicas: Replicas = 1
    """Replicas behind its load balancer."""
    balancing: Balancing | None = None
    """As in the request when left out."""
    scheduler: SchedulerSettings | None = None
    """As in the request when left out."""
    classes: Annotated[Sequence[Annotated[str, Field(min_length=1, max_length=50)]], Field(max_length=100)] = ()
    """Classes of requests that it takes: class-1, class-2 ... as the workload lists them; `all` of a workload without classes, `trace`,
    `flood`. Every class when left out."""
    max_input_tokens: RequestTokens | None = None
    """Longest prompt that it takes; any when left out [tokens]."""


class ReplicaLost(Given):
    """A replica goes down with all that it computes and holds; its clients send again."""

    kind: Literal["replica_loss"]
    """Which fault."""
    at_s: Moment
    """When it goes [s]."""
    duration_s: Span | None = None
    """Until it serves again, with an empty cache: a restart; never when left out [s]."""
    replica_index: Annotated[int, Field(ge=0, le=999)] = 0
    """Which one of its pool, counted from 0."""
    pool: PoolName = None
    """Name of its pool; needed where there are several."""


class TrafficSurge(Given):
    """The rate is multiplied for a while: doubled traffic."""

    kind: Literal["surge"]
    """Which fault."""
    at_s: Moment
    """When it begins [s]."""
    duration_s: Span
    """How long it lasts [s]."""
    factor_ratio: Annotated[float, Field(ge=0.01, le=1000)] = 2
    """Rate meanwhile / usual rate."""


class LongFlood(Given):
    """Requests of one length that come on top for a while, at random."""

    kind: Literal["flood"]
    """Which fault."""
    at_s: Moment
    """When it begins [s]."""
    duration_s: Span
    """How long it lasts [s]."""
    request_rps: Rps
    """Their rate [requests/s]."""
    input_tokens: RequestTokens
    """Their prompts [tokens]."""
    output_tokens: RequestTokens
    """Their outputs [tokens]."""


class PrefixFlush(Given):
    """The replicas forget what their prefix caches hold."""

    kind: Literal["cache_flush"]
    """Which fault."""
    at_s: Moment
    """When [s]."""
    pool: PoolName = None
    """Name of the pool; all of them when left out."""


SimulatedFault = Annotated[ReplicaLost | TrafficSurge | LongFlood | PrefixFlush, Field(discriminator="kind")]


class TracedRequest(Given):
    """One request of a recorded trace."""

    arrival_s: Moment
    """When it arrives, from the start of the trace [s]."""
    input_tokens: RequestTokens
    """Its prompt [tokens]."""
    output_tokens: RequestTokens
    """Its output [tokens]."""


class SimulatedClients(Given):
    """How long clients wait, and whether they come again."""

    timeout_s: Span | None = None
    """From sending a request to the end of its answer; they wait for ever when left out [s]."""
    max_num_retries: Annotated[int, Field(ge=0, le=10)] = 0
    """Times that a request is sent again after a timeout: a storm when all time out."""
    retry_delay_s: Moment = 0
    """Before it is sent again [s]."""
    resend_lost: bool = True
    """Requests of a replica that is lost are sent again at once; else they have failed."""


class SimulationRequest(Given):
    """What tails, queues, mixes, bursts and failures do to a fleet."""

    model: ModelRef
    """The model."""
    gpu: GpuRef
    """The accelerator."""
    deployment: Deployment = Deployment()
    """How one replica runs."""
    workload: Workload | None = None
    """The traffic: requests arrive at peak_rps x burst_ratio for the whole run; or give a trace."""
    trace: Annotated[Sequence[TracedRequest], Field(max_length=50_000)] = ()
    """Recorded requests, replayed instead of a workload."""
    variation_ratio: Annotated[float, Field(ge=0, le=20)] = 1
    """Standard deviation of the gaps between arrivals / their mean (gamma): 1 is a Poisson process, more comes in bursts; below 0.01 a
    constant pace."""
    concurrency: Annotated[int, Field(ge=1, le=10**6)] | None = None
    """Clients of the whole fleet that each send a request as their last one ends, instead of the workload's rate."""
    replicas: Replicas = 1
    """Replicas behind the load balancer, where all requests go to one pool."""
    pools: Annotated[Sequence[PoolOfReplicas], Field(max_length=10)] = ()
    """Several pools instead: each request goes to the first one that takes its class and the length of its prompt."""
    balancing: Balancing = "least_loaded"
    """To which replica a request goes: the next one, the one with fewest requests, or the one that holds its prefix unless that one is far
    ahead of the others."""
    num_prefixes: Annotated[int, Field(ge=1, le=10_000)] = 1
    """Different shared prefixes of the workload, equally often."""
    scheduler: SchedulerSettings = SchedulerSettings()
    """How the engine schedules, where that is not its default."""
    batching: Batching = "continuous"
    """continuous: requests join and leave at every step; dynamic: the next batch is what arrived meanwhile; static: full batches only."""
    max_num_waiting: Count | None = None
    """Requests that may wait in one replica; more are rejected."""
    clients: SimulatedClients = SimulatedClients()
    """How long clients wait, and whether they come again."""
    faults: Annotated[Sequence[SimulatedFault], Field(max_length=20)] = ()
    """What goes wrong, and when."""
    slo: Slo | None = None
    """Latency objectives: each is judged, and requests that keep the strictest of each time count for the goodput."""
    duration_s: Annotated[float, Field(ge=1, le=1e6)] | None = None
    """Time in which requests arrive; 300 when neither it nor num_requests is given [s]."""
    num_requests: Count | None = None
    """Requests of one seed after which none arrives any more."""
    warm_up_ratio: Annotated[float, Field(ge=0, le=0.9)] = 0.1
    """Share of that time that is left out of the figures."""
    num_under_way: Annotated[int, Field(ge=0, le=10**4)] = 0
    """Requests in the fleet at the start, about, at random places of their outputs: a run need not fill up first. They come on top of
    `num_requests` and belong to the warm-up."""
    seeds: Annotated[Sequence[Annotated[int, Field(ge=0, le=10**9)]], Field(min_length=1, max_length=30)] = (1, 2, 3)
    """One run each; the same seed gives the same run, and the same traffic to other deployments."""
    calibration: CalibrationChoice = None
    """Id of the calibration whose constants the steps take, or `none`; left out: that of this very set-up, where there is one."""

    @model_validator(mode="after")
    def _one_traffic(self) -> "SimulationRequest":
        if (self.workload is None) == (not self.trace):
            raise ValueError("give either workload or trace")
        if self.num_under_way and (self.trace or self.concurrency is not None):
            raise ValueError("num_under_way belongs to requests that arrive at a rate: leave out trace and concurrency")
        if self.trace and self.concurrency is not None:
            raise ValueError("a trace has times of arrival: leave out concurrency")
        if len(set(self.seeds)) < len(self.seeds):
            raise ValueError("seeds must differ: the same seed gives the same run")
        if self.pools and "replicas" in self.model_fields_set:
            raise ValueError("give either replicas or pools, which have their own")
        if len({pool.name for pool in self.pools}) < len(self.pools):
            raise ValueError("the names of pools must differ")
        return self
