"""Metric names of exporters beside the engine: NVIDIA's DCGM exporter, and cAdvisor for the container's CPU."""

import re

from app.domain.units import MIB
from app.importers.scrape_gauges import Amount, Changed, Level, Quotient
from app.importers.scrape_map import Fact, ScrapeMap
from app.importers.scrape_readings import Rate, Ratio, series
from app.importers.scrape_window import Series

_PERCENT = 0.01
_NANOSECONDS = 1e-9
_MEGAHERTZ = 1e6
_UTILIZATION = Series("DCGM_FI_DEV_GPU_UTIL")
_BUSY_PERCENT = 50.0
"""A clock tells of power and heat only while the device works: an idle one slows down by itself."""
_MEMORY = series("DCGM_FI_DEV_FB_FREE", "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_RESERVED")

DCGM = ScrapeMap(
    engine="dcgm",
    pattern=re.compile(r"DCGM_(?P<name>\w+)"),
    prefix="DCGM_",
    is_companion=True,
    engine_labels=("gpu", "UUID"),
    only_empty=("GPU_I_ID",),  # of a device that is partitioned, the whole
    readings=(
        Level("gpu_utilization_ratio", (_UTILIZATION,), factor=_PERCENT),
        Level("sm_active_ratio", series("DCGM_FI_PROF_SM_ACTIVE")),
        Level("dram_active_ratio", series("DCGM_FI_PROF_DRAM_ACTIVE")),
        Level("tensor_active_ratio", series("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE")),
        Quotient(
            "sm_clock_ratio",
            Series("DCGM_FI_DEV_SM_CLOCK"),
            series("DCGM_FI_DEV_MAX_SM_CLOCK"),
            pick="min",
            while_at_least=(_UTILIZATION, _BUSY_PERCENT),
        ),
        Rate(
            "throttled_time_ratio",
            series(
                "DCGM_FI_DEV_POWER_VIOLATION",
                "DCGM_FI_DEV_CLOCKS_EVENT_REASON_SW_POWER_CAP_NS",
            ),
            also=series("DCGM_FI_DEV_THERMAL_VIOLATION"),
            factor=_NANOSECONDS,
        ),
        Quotient("gpu_power_ratio", Series("DCGM_FI_DEV_POWER_USAGE"), series("DCGM_FI_DEV_ENFORCED_POWER_LIMIT"), pick="max"),
        Quotient("gpu_power_ratio", Series("DCGM_FI_DEV_POWER_USAGE"), series("DCGM_FI_DEV_POWER_MGMT_LIMIT"), pick="max"),
        Changed("num_xid_errors", Series("DCGM_FI_DEV_XID_ERRORS")),
        Amount("pcie_bytes_per_s", series("DCGM_FI_PROF_PCIE_TX_BYTES"), also=series("DCGM_FI_PROF_PCIE_RX_BYTES")),
        Quotient("gpu_memory_free_ratio", _MEMORY[0], _MEMORY, pick="min"),
    ),
    facts=(
        Fact("gpu", _UTILIZATION, "modelName", is_text=True),
        Fact("driver_version", _UTILIZATION, "DCGM_FI_DRIVER_VERSION", is_text=True),
        Fact("sm_clock_hz", Series("DCGM_FI_DEV_SM_CLOCK"), factor=_MEGAHERTZ),
        Fact("gpu_power_watts", Series("DCGM_FI_DEV_POWER_USAGE")),
        Fact("gpu_memory_free_bytes", _MEMORY[0], factor=MIB),
    ),
    sources=(
        "https://github.com/NVIDIA/dcgm-exporter/blob/main/etc/default-counters.csv",
        "https://docs.nvidia.com/datacenter/dcgm/latest/dcgm-api/dcgm-api-field-ids.html",
        "https://github.com/NVIDIA/dcgm-exporter/pull/589",  # violations are nanoseconds, whatever the help texts of older exporters say
    ),
)

CADVISOR = ScrapeMap(
    engine="cadvisor",
    pattern=re.compile(r"container_(?P<name>\w+)"),
    prefix="container_",
    is_companion=True,
    engine_labels=("container", "name", "id"),
    skipped={"container": ("", "POD"), "id": ("/",)},  # sums over a pod and over the host
    readings=(
        Ratio("cpu_throttled_ratio", [(Series("container_cpu_cfs_throttled_periods"), Series("container_cpu_cfs_periods"))]),
        Quotient("num_cpu_cores_limit", Series("container_spec_cpu_quota"), series("container_spec_cpu_period")),
    ),
    sources=("https://github.com/google/cadvisor/blob/master/docs/storage/prometheus.md",),
)
