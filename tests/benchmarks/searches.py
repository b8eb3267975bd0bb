"""Candidate deployments that a search decides per second of CPU time of one core, on searches of different kinds.

`python -m tests.benchmarks.searches` prints the table. A candidate is decided when it was refused with a reason, shown by bounds to be in
no list, or computed to the end; the plans of what is listed are not counted, the reading of the catalog neither.
"""

import sys
import time
from typing import Any, NamedTuple

from app.catalog.loader import load_bundled
from app.domain.search import Found
from app.services.recommendation import RecommendRequest, search_of

CHAT: dict[str, Any] = {"peak_rps": 100, "input_tokens": {"mean": 4000, "p95": 12000}, "output_tokens": 500}
SLO = {"ttft_p95_s": 2, "tpot_p95_s": 0.04}
BODIES: dict[str, dict[str, Any]] = {
    "70B, all accelerators and precisions": {"model": "llama-3.1-70b", "workload": CHAT, "slo": SLO},
    "the same, vLLM and SGLang": {"model": "llama-3.1-70b", "workload": CHAT, "slo": SLO, "engines": ["vllm", "sglang"]},
    "8B, most candidates hold": {"model": "llama-3.1-8b", "workload": CHAT | {"peak_rps": 1000}, "slo": SLO},
    "120B of experts, little traffic": {"model": "gpt-oss-120b", "workload": CHAT | {"peak_rps": 0.1}, "slo": SLO},
    "671B of experts": {"model": "deepseek-v3", "workload": CHAT, "slo": {"ttft_p95_s": 4, "tpot_p95_s": 0.08}},
}
GOAL_PER_S = 20_000
ROUNDS = 5


class Rate(NamedTuple):
    """One search, the quietest of the rounds: others on the machine only add to it."""

    found: Found
    cpu_s: float

    @property
    def decided_per_s(self) -> float:
        """Candidates decided per second of CPU time."""
        return self.found.num_decided / self.cpu_s


def measure(body: dict[str, Any]) -> Rate:
    """Search a few times; the model's sums are kept from the first."""
    catalog, request = load_bundled().snapshot("bundled"), RecommendRequest.model_validate(body)
    times, found = [], None
    for _ in range(ROUNDS + 1):
        search = search_of(catalog, request)
        before = time.process_time()
        found = search.run()
        times.append(time.process_time() - before)
    assert found is not None
    return Rate(found, min(times[1:]))


def main() -> None:
    """Print the table."""
    sys.stdout.write(f"| search | candidates | computed to the end | s | candidates/s (goal {GOAL_PER_S:,}) |\n|---|---|---|---|---|\n")
    for name, body in BODIES.items():
        rate = measure(body)
        found = rate.found
        line = f"| {name} | {found.num_decided:,} | {found.num_computed:,} | {rate.cpu_s:.2f} | {rate.decided_per_s:,.0f} |\n"
        sys.stdout.write(line)


if __name__ == "__main__":
    main()
