"""Accelerators, links, host and process that a diagnosis reads."""

from typing import Annotated

from pydantic import Field

from app.domain.metrics_load import Count, Rate, Share
from app.domain.value import Given

Seconds = Annotated[float, Field(ge=0, le=1e7)]
Cores = Annotated[float, Field(ge=0, le=1e5)]


class AcceleratorMetrics(Given):
    """The accelerators of one engine and their links."""

    gpu_utilization_ratio: Share | None = None
    """Share of time in which any kernel ran, as nvidia-smi reports it; says little about work done when it is high."""
    sm_active_ratio: Share | None = None
    """Share of cycles in which a streaming multiprocessor had work (DCGM_FI_PROF_SM_ACTIVE)."""
    dram_active_ratio: Share | None = None
    """Share of cycles in which device memory moved data (DCGM_FI_PROF_DRAM_ACTIVE); about 0.8 is the most that is reached."""
    tensor_active_ratio: Share | None = None
    """Share of cycles in which the matrix units had work (DCGM_FI_PROF_PIPE_TENSOR_ACTIVE)."""
    sm_clock_ratio: Annotated[float, Field(ge=0, le=2)] | None = None
    """Sustained clock under load / the clock that the device reaches when neither power nor heat hold it back."""
    throttled_time_ratio: Share | None = None
    """Share of time in which power or heat held the clock down (DCGM_FI_DEV_POWER_VIOLATION, DCGM_FI_DEV_THERMAL_VIOLATION)."""
    gpu_power_ratio: Annotated[float, Field(ge=0, le=2)] | None = None
    """Power drawn / power limit."""
    num_xid_errors: Count | None = None
    """Driver errors (XID) in the window."""
    pcie_bytes_per_s: Rate | None = None
    """Bytes per second over PCIe, both directions of one device."""
    link_bandwidth_ratio: Annotated[float, Field(ge=0, le=2)] | None = None
    """Bandwidth between the accelerators as measured / as the topology ought to give."""
    communication_time_ratio: Share | None = None
    """Share of a step that collectives between accelerators take."""
    num_oom_events: Count | None = None
    """Times the process ran out of device memory in the window."""
    gpu_memory_reserved_unallocated_ratio: Share | None = None
    """Memory that the allocator holds without using it, as the out-of-memory message states it / device memory."""
    gpu_memory_free_ratio: Share | None = None
    """Free device memory / device memory, where it was least."""


class HostMetrics(Given):
    """The host of one engine, and the life of its process."""

    cpu_throttled_ratio: Share | None = None
    """Scheduling periods in which the container was throttled / all periods (nr_throttled / nr_periods of cpu.stat)."""
    num_cpu_cores_limit: Cores | None = None
    """Cores that the container may use."""
    num_cpu_threads: Count | None = None
    """Threads of the largest pool of the process (OMP_NUM_THREADS, compile workers, media workers)."""
    num_engine_cpu_cores_used: Cores | None = None
    """Cores that the engine process keeps busy; 3.8 is 380 %."""
    num_frontend_cpu_cores_used: Cores | None = None
    """Cores that the API server, tokenizer or proxy process in front of the engine keeps busy; about 1 is the most one process gets."""
    num_client_cpu_cores_used: Cores | None = None
    """Cores that the client or benchmark process keeps busy; about 1 is the most that one Python process gets."""
    host_time_ratio: Share | None = None
    """Share of a step in which the accelerator waits for the host: scheduling, input preparation, launches, output handling."""
    num_frontend_processes: Count | None = None
    """API servers, tokenizer workers or proxies that share the work in front of the engine."""
    cpu_affinity_ratio: Share | None = None
    """Processes of the engine that are bound to cores of their accelerator's NUMA node / all; 0 where nothing binds them."""
    run_to_run_spread_ratio: Annotated[float, Field(ge=0, le=100)] | None = None
    """(Largest - smallest) / mean of one figure over repeated runs of the same set-up and load."""
    numa_local_ratio: Share | None = None
    """Memory accesses or pages of the process on its own NUMA node / all."""
    health_check_latency_s: Seconds | None = None
    """Time that the health or metrics route of the server takes to answer [s]."""
    stall_max_s: Seconds | None = None
    """Longest pause in which no stream of the engine got a token [s]."""
    stall_period_s: Seconds | None = None
    """Time from one such pause to the next, where they come regularly [s]."""
    gc_pause_max_s: Seconds | None = None
    """Longest garbage collection of the process [s]."""
    uptime_s: Seconds | None = None
    """Time since the engine started to serve [s]."""
    start_up_s: Seconds | None = None
    """Time from the start of the process to the first answer [s]."""
    num_jit_compilations: Count | None = None
    """Kernels compiled while requests were served, as the engine's log says."""
    first_request_ttft_s: Seconds | None = None
    """TTFT of the first request after a start, or of the first of its kind or length [s]."""
    first_request_e2e_s: Seconds | None = None
    """E2E of that request [s]."""
    repeated_request_ttft_s: Seconds | None = None
    """TTFT of the same request sent again [s]."""
    repeated_request_e2e_s: Seconds | None = None
    """E2E of the same request sent again [s]."""
