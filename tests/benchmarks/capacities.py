"""CPU time of `/capacity` by simulation, and how far its approximation is off: `python -m tests.benchmarks.capacities` prints the table.

The budget is `MOST_CPU_S` of computing on the machine of the simulation's benchmark; a busy one takes up to twice as long.
"""

import sys
import time
from typing import Any, NamedTuple

from app.catalog.loader import load_bundled
from app.services.capacity import capacity
from app.services.requests import CapacityRequest
from app.services.simulated_capacity import MOST_CPU_S

ON_70B = {"model": "llama-3.1-70b", "gpu": "h100-sxm-80gb", "deployment": {"tp": 4, "weights": "fp8", "kv_cache": "fp8", "engine": "vllm"}}
ON_8B = {"model": "llama-3.1-8b", "gpu": "h100-sxm-80gb", "deployment": {"engine": "vllm"}}
SPREAD = {"input_tokens": {"mean": 4000, "p95": 12000}, "output_tokens": 500}
EVEN = {"input_tokens": 8000, "output_tokens": 100}
CHAT = {"input_tokens": {"mean": 1000, "p95": 3000}, "output_tokens": {"mean": 300, "p95": 900}}
STRICT = {"ttft_p95_s": 2, "tpot_p95_s": 0.04}
CASES: dict[str, dict[str, Any]] = {
    "70B, 100 requests/s of 4000 (P95 12000) + 500": ON_70B | {"workload": {"peak_rps": 100, **SPREAD}, "slo": STRICT},
    "70B, 5 requests/s of the same": ON_70B | {"workload": {"peak_rps": 5, **SPREAD}, "slo": STRICT},
    "70B, 40 requests/s of 8000 + 100": ON_70B | {"workload": {"peak_rps": 40, **EVEN}, "slo": {"ttft_p99_s": 2}},
    "8B, 40 requests/s of 1000 (P95 3000) + 300 (P95 900)": ON_8B | {"workload": {"peak_rps": 40, **CHAT}, "slo": STRICT},
    "70B, an objective that nothing holds": ON_70B | {"workload": {"peak_rps": 5, **SPREAD}, "slo": {"ttft_p95_s": 0.4}},
}


class Figure(NamedTuple):
    """What a case took and found."""

    cpu_s: float
    num_requests: int
    replicas: float | None
    approximated_ratio: float | None


def measure(body: dict[str, Any]) -> Figure:
    """Answer once; the first answer also builds what others reuse."""
    catalog = load_bundled().snapshot("bundled")
    request = CapacityRequest.model_validate(body)
    capacity(catalog, request.model_copy(update={"percentiles": "approximated"}))
    before = time.process_time()
    found = capacity(catalog, request).simulated
    taken_s = time.process_time() - before
    if found is None:
        return Figure(taken_s, 0, None, None)
    exact = found.replicas_exact
    return Figure(taken_s, found.num_requests_simulated, None if exact is None else exact.value, found.replicas_approximated_ratio)


def main() -> None:
    """Print the table."""
    sys.stdout.write(f"| `/capacity` by simulation | CPU s (budget {MOST_CPU_S:g}) | requests | replicas | approximated / simulated |\n")
    sys.stdout.write("|---|---|---|---|---|\n")
    for name, body in CASES.items():
        figure = measure(body)
        replicas, ratio = ("none" if value is None else f"{value:.3g}" for value in (figure.replicas, figure.approximated_ratio))
        sys.stdout.write(f"| {name} | {figure.cpu_s:.1f} | {figure.num_requests:,} | {replicas} | {ratio} |\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
