"""A load as command lines of benchmark tools.

Options: https://docs.vllm.ai/en/latest/cli/bench/serve/, https://docs.sglang.io/developer_guide/bench_serving.html,
https://github.com/vllm-project/guidellm, https://github.com/ai-dynamo/aiperf. A test holds them against those that the parsers of the
installed tools define; the lines of all four (vLLM 0.33.0, SGLang 0.5.23, GuideLLM 0.8.1, AIPerf 0.13.0) were run against a server that
streams as vLLM does, with and without a shared prefix: lengths, counts, concurrency and rates arrived as meant, but for what
`GUIDELLM_RATES` says and some 15 % more tokens where SGLang's shared prefix is tokenized again.
"""

import json
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from app.domain.deployment import EngineName
from app.domain.load_test import LoadTool, ToolCommand
from app.domain.units import plain

SEED = 42
"""The same prompts in every run of a level, so that runs can be compared."""

GUIDELLM_RATES = (
    "At a rate GuideLLM 0.8.1 draws the same gaps in each of its worker processes (ten by default): arrivals come in groups of equal gaps, "
    "not as a Poisson process. Take another tool for the mixed test."
)
"""Read at https://github.com/vllm-project/guidellm/blob/main/src/guidellm/scheduler/strategies.py (a generator of the same seed in every
process), seen when 40 requests at 5/s took 3.2 s."""


@dataclass(frozen=True)
class BenchmarkRun:
    """What a tool is told to do: a closed loop where `concurrency` is given, Poisson arrivals at `request_rps` otherwise."""

    engine: EngineName
    model: str
    base_url: str
    input_tokens: int
    """Whole prompt, the shared prefix included."""
    output_tokens: int
    prefix_tokens: int
    """Beginning that all prompts share; below the whole prompt."""
    num_requests: int
    name: str
    """Of the results file, without its ending."""
    concurrency: int | None = None
    request_rps: float | None = None

    @property
    def own_tokens(self) -> int:
        """What follows the shared beginning."""
        return max(1, self.input_tokens - self.prefix_tokens)

    @property
    def rate(self) -> str:
        """The rate as text."""
        return plain(self.request_rps or 0)


Words = list[str | int]


def commands_of(run: BenchmarkRun) -> list[ToolCommand]:
    """The run for each tool."""
    return [ToolCommand(tool=tool, command=shlex.join(str(word) for word in write(run))) for tool, write in _TOOLS.items()]


def _vllm(run: BenchmarkRun) -> Words:
    load: Words = ["--request-rate", run.rate] if run.concurrency is None else ["--max-concurrency", run.concurrency]
    prefix: Words = ["--random-prefix-len", run.prefix_tokens] if run.prefix_tokens else []
    return [
        "vllm", "bench", "serve", "--backend", "openai", "--base-url", run.base_url, "--model", run.model,
        "--dataset-name", "random", *prefix, "--random-input-len", run.own_tokens, "--random-output-len", run.output_tokens,
        "--ignore-eos", "--num-prompts", run.num_requests, *load, "--seed", SEED,
        "--percentile-metrics", "ttft,tpot,itl,e2el", "--metric-percentiles", "50,90,95,99",
        "--save-result", "--result-dir", "results", "--result-filename", f"{run.name}.json",
    ]  # fmt: skip


def _sglang(run: BenchmarkRun) -> Words:
    load: Words = ["--request-rate", run.rate] if run.concurrency is None else ["--max-concurrency", run.concurrency]
    if run.prefix_tokens:
        data: Words = [
            "--dataset-name", "generated-shared-prefix", "--gsp-num-groups", 1, "--gsp-prompts-per-group", run.num_requests,
            "--gsp-system-prompt-len", run.prefix_tokens, "--gsp-question-len", run.own_tokens, "--gsp-output-len", run.output_tokens,
        ]  # fmt: skip
    else:
        # Here the ratio is the shortest length over the longest: 1 makes all equally long.
        data = ["--dataset-name", "random-ids", "--random-input-len", run.input_tokens, "--random-output-len", run.output_tokens,
                "--random-range-ratio", 1]  # fmt: skip
    backend = "sglang" if run.engine == "sglang" else "vllm"
    return [
        "python3", "-m", "sglang.bench_serving", "--backend", backend, "--base-url", run.base_url, "--model", run.model, *data,
        "--num-prompts", run.num_requests, *load, "--seed", SEED, "--output-file", f"results/{run.name}.jsonl",
    ]  # fmt: skip


def _guidellm(run: BenchmarkRun) -> Words:
    profile = (
        {"kind": "poisson", "rate": [run.request_rps]} if run.concurrency is None else {"kind": "concurrent", "streams": [run.concurrency]}
    )
    data: dict[str, object] = {"kind": "synthetic_text", "prompt_tokens": run.own_tokens, "output_tokens": run.output_tokens}
    if run.prefix_tokens:
        data["prefix_buckets"] = [{"bucket_weight": 100, "prefix_count": 1, "prefix_tokens": run.prefix_tokens}]
    return [
        "guidellm", "run", "--backend", json.dumps({"kind": "openai_http", "target": run.base_url, "model": run.model}),
        "--profile", json.dumps(profile), "--data", json.dumps(data),
        "--constraint", f"kind=max_requests,count={run.num_requests}", "--output", f"kind=json,path=results/{run.name}.json",
    ]  # fmt: skip


def _aiperf(run: BenchmarkRun) -> Words:
    load: Words = ["--request-rate", run.rate] if run.concurrency is None else ["--concurrency", run.concurrency]
    prefix: Words = ["--prefix-prompt-length", run.prefix_tokens, "--num-prefix-prompts", 1] if run.prefix_tokens else []
    return [
        "aiperf", "profile", "--model", run.model, "--url", run.base_url, "--endpoint-type", "chat", "--streaming", *prefix,
        "--synthetic-input-tokens-mean", run.own_tokens, "--output-tokens-mean", run.output_tokens, "--extra-inputs", "ignore_eos:true",
        "--request-count", run.num_requests, *load, "--random-seed", SEED, "--output-artifact-dir", f"results/{run.name}",
    ]  # fmt: skip


_TOOLS: Mapping[LoadTool, Callable[[BenchmarkRun], Words]] = {"vllm": _vllm, "sglang": _sglang, "guidellm": _guidellm, "aiperf": _aiperf}
