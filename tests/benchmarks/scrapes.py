"""CPU time of reading two scrapes of 4 MB as a ratio to splitting their lines and reading their numbers, in one run.

`python -m tests.benchmarks.scrapes` prints the table.
"""

import statistics
import sys
import time
from collections.abc import Callable

from app.importers.scrapes import read_scrapes
from tests.importers.scrape_files import SECONDS, pair

MEGABYTES = 4
REPEATS = 5


def of_several(text: str, num_replicas: int) -> str:
    """The scrape as a collector writes it that gathers several replicas."""
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    named = (line.replace("{", f'{{pod="vllm-{number}",', 1) for number in range(num_replicas) for line in lines)
    return "\n".join(named) + "\n"


def cpu_s(work: Callable[[], object]) -> float:
    """Median CPU time [s]."""
    times = []
    for _ in range(REPEATS):
        begun = time.process_time()
        work()
        times.append(time.process_time() - begun)
    return statistics.median(times)


def bare(texts: list[str]) -> float:
    """The least that reading can be: every line's number."""
    return sum(float(line.rsplit(" ", 1)[1]) for text in texts for line in text.splitlines())


def main() -> None:
    """Print one line for each kind of scrape."""
    sys.stdout.write("| scrapes | MB | CPU [s] | ratio to reading the numbers alone |\n|---|---|---|---|\n")
    for name in ("vllm_0.33_saturated", "sglang_0.5.23_cuda_graph_gap", "trtllm_serve_saturated"):
        one = pair(name)
        num_replicas = round(MEGABYTES * 1e6 / len(of_several(one[0], 1)))
        texts = [of_several(text, num_replicas) for text in one]
        taken = cpu_s(lambda texts=texts: read_scrapes(texts, SECONDS, pointer=""))  # type: ignore[misc]
        least = cpu_s(lambda texts=texts: bare(texts))  # type: ignore[misc]
        size = sum(len(text) for text in texts) / 1e6
        sys.stdout.write(f"| {name}, {num_replicas} replicas, two | {size:.1f} | {taken:.2f} | {taken / least:.1f} |\n")


if __name__ == "__main__":
    main()
