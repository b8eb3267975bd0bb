"""CPU time of each calculation as a ratio to a bare route with the same request and response bodies, both behind uvicorn, in one run.

`python -m tests.benchmarks.calculations` prints the table. The bare route is plain FastAPI: it validates the same request type and
serialises a ready answer of the same type; it has no checks, ids, logs, metrics or keys around it and calculates nothing.
"""

import http.client
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel

from app.catalog.loader import load_bundled
from app.services.estimates import CALCULATIONS
from tests.serving import environment, free_port, serving

DEPLOYMENT = {"tp": 4, "weights": "fp8"}
NAMES = {"model": "llama-3.1-70b", "gpu": "h100-sxm-80gb", "deployment": DEPLOYMENT}
ON_VLLM = {**DEPLOYMENT, "engine": "vllm"}
LOAD = {"input_tokens": 4000, "output_tokens": 500, "concurrency": 64}
MOST_S = 2e-3
"""CPU of a whole request that answers about speed may take."""
TRAFFIC = {
    "workload": {"peak_rps": 100, "input_tokens": {"mean": 4000, "p95": 12000}, "output_tokens": 500},
    "slo": {"ttft_p95_s": 2, "tpot_p95_s": 0.04},
}


class Case(NamedTuple):
    """A request to an endpoint, and the most that it may cost: beside the bare route, or in CPU time."""

    endpoint: str
    body: dict[str, Any]
    goal_ratio: float | None = None
    goal_s: float | None = None

    @property
    def goal(self) -> str:
        """The goal for people."""
        if self.goal_s is not None:
            return f"{self.goal_s * 1e3:g} ms"
        return "none" if self.goal_ratio is None else f"ratio {self.goal_ratio:g}"


CASES: dict[str, Case] = {
    "`/kv`": Case(
        "kv", {"model": "llama-3.1-70b", "tp": 4, "context_tokens": [4096, 8192, 32768, 131072], "num_sequences": 32}, goal_ratio=1.5
    ),
    "`/memory`": Case("memory", NAMES, goal_ratio=1.5),
    "`/memory`, engine vllm": Case("memory", {**NAMES, "deployment": ON_VLLM}),
    "`/memory`, engine vllm, which fails": Case("memory", {**NAMES, "deployment": {"tp": 2, "engine": "vllm"}}),
    "`/concurrency`": Case("concurrency", {**NAMES, "tokens_per_sequence": 8000}, goal_ratio=1.5),
    "`/performance`": Case("performance", {**NAMES, **LOAD}, goal_s=MOST_S),
    "`/performance`, engine vllm": Case("performance", {**NAMES, **LOAD, "deployment": ON_VLLM}, goal_s=MOST_S),
    "`/capacity`": Case("capacity", {**NAMES, **TRAFFIC}, goal_s=MOST_S),
    "`/capacity`, engine vllm, approximated": Case(
        "capacity", {**NAMES, **TRAFFIC, "deployment": ON_VLLM, "percentiles": "approximated"}, goal_s=MOST_S
    ),
    "`/cost`": Case(
        "cost",
        {
            "replica_usd_per_hour": 20,
            "output_tokens_per_s": 8000,
            "workload": {"peak_rps": 10, "input_tokens": 1200, "output_tokens": 300},
        },
        goal_ratio=2.0,
    ),
}
ROUNDS, REQUESTS_PER_ROUND, WARM_UP = 25, 100, 100


class Figure(NamedTuple):
    """CPU seconds per request of the quietest round, for others on the machine only add to it, and the median of the rounds' ratios."""

    service_s: float
    bare_s: float
    ratio: float


def bare_service() -> FastAPI:
    """One bare route per case, under its place in `CASES`."""
    catalog = load_bundled().snapshot("bundled")
    app = FastAPI()
    for index, case in enumerate(CASES.values()):
        request_type, calculate = CALCULATIONS[case.endpoint]
        answer = calculate(catalog, request_type.model_validate(case.body))
        app.post(f"/{index}")(_route(request_type, answer))
    return app


def _route(request_type: type[BaseModel], answer: BaseModel) -> Any:
    async def route(request: BaseModel) -> BaseModel:
        return answer

    route.__annotations__ = {"request": request_type, "return": type(answer)}
    return route


@contextmanager
def _bare_process() -> Iterator[tuple[int, int]]:
    port = free_port()
    process = subprocess.Popen([sys.executable, "-m", "tests.benchmarks.calculations", "serve-bare", str(port)], env=environment())
    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                http.client.HTTPConnection("127.0.0.1", port, timeout=5).request("GET", "/docs")
                break
            except OSError:
                if time.monotonic() > deadline or process.poll() is not None:
                    raise
                time.sleep(0.1)
        yield process.pid, port
    finally:
        process.kill()
        process.wait()


def _cpu_s(pid: int) -> float:
    """CPU time of all threads of a process, to the nanosecond (Linux)."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def _cpu_s_per_request(pid: int, port: int, path: str, content: dict[str, Any], num_requests: int) -> float:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    body = json.dumps(content)
    before_s = _cpu_s(pid)
    for _ in range(num_requests):
        connection.request("POST", path, body=body, headers={"Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"{path} answered {answer.status}: {text[:300]!r}")
    used_s = _cpu_s(pid) - before_s
    connection.close()
    return used_s / num_requests


def measure() -> dict[str, Figure]:
    """Every calculation against its bare route, alternating, with both services running all the time."""
    figures = {}
    with tempfile.TemporaryDirectory(prefix="inferplan-benchmark-") as directory:
        Path(directory).chmod(0o755)
        with serving(Path(directory) / "data") as server, _bare_process() as (bare_pid, bare_port):
            for index, (name, case) in enumerate(CASES.items()):
                service_route = server.process.pid, server.port, f"/{case.endpoint}", case.body
                bare_route = bare_pid, bare_port, f"/{index}", case.body
                _cpu_s_per_request(*service_route, WARM_UP)
                _cpu_s_per_request(*bare_route, WARM_UP)
                pairs = [
                    (_cpu_s_per_request(*service_route, REQUESTS_PER_ROUND), _cpu_s_per_request(*bare_route, REQUESTS_PER_ROUND))
                    for _ in range(ROUNDS)
                ]
                service, bare = zip(*pairs, strict=True)
                ratio = statistics.median(one / other for one, other in pairs)
                figures[name] = Figure(min(service), min(bare), ratio)
    return figures


def table(figures: dict[str, Figure]) -> str:
    """The figures as Markdown."""
    lines = ["| endpoint | CPU per request | bare route | ratio | goal |", "|---|---|---|---|---|"]
    for name, figure in figures.items():
        times = f"{figure.service_s * 1e6:.0f} us | {figure.bare_s * 1e6:.0f} us | {figure.ratio:.2f}"
        lines.append(f"| {name} | {times} | {CASES[name].goal} |")
    return "\n".join(lines)


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve-bare"]:
        uvicorn.run(
            bare_service(), host="127.0.0.1", port=int(sys.argv[2]), http="httptools", loop="asyncio", log_level="error", access_log=False
        )
    else:
        sys.stdout.write(table(measure()) + "\n")
