"""Results files as benchmark tools wrote them against a stub of known latencies: every tool must come out at the same law."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from app.domain.errors import UnsupportedConfig
from app.domain.load_point import LoadPoint
from app.importers.benchmark_results import read_sweep
from tests.importers.benchmark.stub_server import BASE_TPOT_S, BASE_TTFT_S, TPOT_PER_STREAM_S, TTFT_PER_TOKEN_S

FILES = Path(__file__).parent / "benchmark"
NUM_OUTPUT = 20

CLOSED_LOOPS = {
    "vllm": ["vllm-0.33.0/sweep.jsonl"],
    "sglang": ["sglang-0.5.23/sweep.jsonl"],
    "guidellm": ["guidellm-0.8.1/sweep.json"],
    "aiperf": [f"aiperf-0.13.0/concurrency-{n}.json" for n in (1, 4, 16)],
    "genai-perf": [f"genai-perf-0.0.16/concurrency-{n}.json" for n in (1, 4, 16)],
    "llm-d": [f"llm-d-benchmark-8bc9f1d/from-vllm-concurrency-{n}.yaml" for n in (1, 4, 16)],
}
RATES = {"vllm": "vllm-0.33.0/rate.json", "guidellm": "guidellm-0.8.1/rate.json", "aiperf": "aiperf-0.13.0/rate.json"}
FAILURES = {
    "vllm-0.33.0/failures.json": 8,
    "guidellm-0.8.1/failures.json": 8,
    "aiperf-0.13.0/failures.json": 8,
    "llm-d-benchmark-8bc9f1d/from-aiperf-failures.yaml": 1,  # kinds of error, all that the converter writes
}
OTHERS = {
    "vllm-0.33.0/detailed.json": "vllm",
    "llm-d-benchmark-8bc9f1d/from-guidellm-concurrency-4.yaml": "llm-d",
    "llm-d-benchmark-8bc9f1d/from-aiperf.yaml": "llm-d",
}
REFUSED = "llm-d-benchmark-8bc9f1d/version-0.1.yaml"


def points(*names: str) -> Sequence[LoadPoint]:
    return read_sweep([(FILES / name).read_text() for name in names]).points


def known(value: float | None) -> float:
    assert value is not None
    return value


@pytest.mark.parametrize(("tool", "names"), CLOSED_LOOPS.items(), ids=CLOSED_LOOPS)
def test_a_sweep_comes_out_at_the_law_of_the_server(tool: str, names: list[str]) -> None:
    sweep = read_sweep([(FILES / name).read_text() for name in names])
    assert sweep.notes == []
    assert [point.tool for point in sweep.points] == [tool] * 3
    assert [point.concurrency for point in sweep.points] == [1, 4, 16]
    for point in sweep.points:
        tpot = BASE_TPOT_S + TPOT_PER_STREAM_S * known(point.concurrency)
        assert known(point.tpot.mean_s) == pytest.approx(tpot, rel=0.05)
        assert known(point.tpot.p50_s) == pytest.approx(tpot, rel=0.05)
        law = BASE_TTFT_S + TTFT_PER_TOKEN_S * known(point.mean_input_tokens)
        assert law <= known(point.ttft.mean_s) < law + 0.05  # the rest is the client, on a busy machine
        assert known(point.e2e.mean_s) == pytest.approx(known(point.ttft.mean_s) + tpot * (NUM_OUTPUT - 1), rel=0.05)
        assert known(point.in_flight) == pytest.approx(known(point.concurrency), rel=0.25)
        assert point.mean_output_tokens == NUM_OUTPUT
        assert 47 <= known(point.num_completed) <= 48  # GuideLLM counted 47 once
        assert not point.num_failed
        assert point.requests_offered_per_s is None
        # GuideLLM takes requests/s and tokens/s over other windows of a run of two seconds; the others divide by one duration.
        same = 0.15 if tool == "guidellm" else 0.01
        assert known(point.output_tokens_per_s) == pytest.approx(NUM_OUTPUT * known(point.requests_per_s), rel=same)


@pytest.mark.parametrize(("tool", "name"), RATES.items(), ids=RATES)
def test_a_rate_is_no_concurrency(tool: str, name: str) -> None:
    (point,) = points(name)
    assert point.tool == tool
    assert point.requests_offered_per_s == 10
    assert point.concurrency is None
    assert known(point.requests_per_s) == pytest.approx(10, rel=0.3)
    assert known(point.in_flight) < 4


@pytest.mark.parametrize(("name", "num_failed"), FAILURES.items(), ids=FAILURES)
def test_failed_requests_are_counted_and_said_and_kept_out_of_the_latencies(name: str, num_failed: int) -> None:
    """The server refused every sixth of 48 requests."""
    sweep = read_sweep([(FILES / name).read_text()])
    (point,) = sweep.points
    assert (point.num_completed, point.num_failed) == (40, num_failed)
    assert [note.code for note in sweep.notes] == ["requests_failed"]
    assert known(point.tpot.mean_s) == pytest.approx(BASE_TPOT_S + TPOT_PER_STREAM_S * 4, rel=0.06)
    assert known(point.ttft.mean_s) > BASE_TTFT_S + TTFT_PER_TOKEN_S * 100


def test_every_file_is_read_in_a_case_and_has_its_tool_named() -> None:
    found = {str(path.relative_to(FILES)) for path in FILES.glob("*/*") if path.suffix in {".json", ".jsonl", ".yaml"}}
    assert found == {name for names in CLOSED_LOOPS.values() for name in names} | {*RATES.values(), *FAILURES, *OTHERS, REFUSED}
    sources = (FILES / "SOURCES.md").read_text()
    assert all(f"| {name.split('/')[0]} | " in sources for name in found)


@pytest.mark.parametrize(("name", "tool"), OTHERS.items(), ids=OTHERS)
def test_other_files_are_read_without_complaint(name: str, tool: str) -> None:
    sweep = read_sweep([(FILES / name).read_text()])
    assert [point.tool for point in sweep.points] == [tool]
    assert sweep.notes == []


def test_a_time_per_output_token_that_contains_the_first_is_not_taken_for_tpot() -> None:
    (point,) = points("llm-d-benchmark-8bc9f1d/from-guidellm-concurrency-4.yaml")
    (_, direct, _) = points("guidellm-0.8.1/sweep.json")
    raw = json.loads((FILES / "guidellm-0.8.1/sweep.json").read_text())["benchmarks"][1]["metrics"]
    assert point.tpot == direct.tpot
    assert raw["time_per_output_token_ms"]["successful"]["mean"] > 1.25 * 1000 * known(direct.tpot.mean_s)


def test_a_report_says_what_the_file_it_was_made_from_says() -> None:
    for made, source in zip(points(*CLOSED_LOOPS["llm-d"]), points(*CLOSED_LOOPS["vllm"]), strict=True):
        left_out = {"tool", "duration_s", "model", "tool_version"}
        assert made.model_dump(exclude=left_out) == source.model_dump(exclude=left_out)


def test_e2e_that_vllm_lists_but_does_not_summarise_is_averaged() -> None:
    text = (FILES / "vllm-0.33.0/sweep.jsonl").read_text()
    for line in text.splitlines():
        fields = json.loads(line)
        stated = fields.pop("mean_e2el_ms") / 1000
        (averaged,) = read_sweep([json.dumps(fields)]).points
        assert known(averaged.e2e.mean_s) == pytest.approx(stated, rel=1e-3)
        (failed,) = read_sweep([json.dumps(fields | {"failed": 1})]).points
        assert failed.e2e.mean_s is None


def test_what_a_file_does_not_say_stays_unknown() -> None:
    (aiperf,) = points("llm-d-benchmark-8bc9f1d/from-aiperf.yaml")
    assert (aiperf.concurrency, aiperf.requests_offered_per_s, aiperf.itl.mean_s, aiperf.duration_s) == (None, None, None, None)
    (rate,) = points("vllm-0.33.0/rate.json")
    assert (rate.tpot.p90_s, rate.tool_version) == (None, None)


def test_several_files_are_one_sweep_in_their_order() -> None:
    sweep = read_sweep([(FILES / name).read_text() for name in (*CLOSED_LOOPS["aiperf"], *CLOSED_LOOPS["guidellm"])])
    assert [(point.tool, point.concurrency) for point in sweep.points] == [
        (tool, concurrency) for tool in ("aiperf", "guidellm") for concurrency in (1, 4, 16)
    ]


def test_an_old_version_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedConfig) as refused:
        points(REFUSED)
    assert (refused.value.field, refused.value.value, refused.value.expected) == ("/files/0/version", "0.1", "'0.2' or '0.2.1'")
    old = json.loads((FILES / "guidellm-0.8.1/sweep.json").read_text())
    old["metadata"]["version"] = 1
    with pytest.raises(UnsupportedConfig, match="version is 1"):
        read_sweep([json.dumps(old)])
