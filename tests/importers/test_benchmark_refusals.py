"""Results files that are damaged, contradict themselves or are meant to hurt: a refusal that says where, or a warning, never a crash."""

import json
import time
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from app.domain.errors import InvalidInput, PlannerError
from app.importers.benchmark_documents import MAX_CHARACTERS, MAX_YAML_CHARACTERS
from app.importers.benchmark_results import MAX_FILES, MAX_POINTS, read_sweep
from tests.importers.test_benchmark_results import CLOSED_LOOPS, FILES

VLLM = (FILES / "vllm-0.33.0/rate.json").read_text()
SGLANG = (FILES / "sglang-0.5.23/sweep.jsonl").read_text()
GUIDELLM = (FILES / "guidellm-0.8.1/sweep.json").read_text()
AIPERF = (FILES / "aiperf-0.13.0/concurrency-4.json").read_text()
GENAI_PERF = (FILES / "genai-perf-0.0.16/concurrency-4.json").read_text()
LLM_D = json.dumps(yaml.safe_load((FILES / "llm-d-benchmark-8bc9f1d/from-vllm-concurrency-4.yaml").read_text()))
READ_WHOLE = {
    "vllm": VLLM,
    "sglang": SGLANG.splitlines()[0],
    "guidellm": GUIDELLM,
    "aiperf": AIPERF,
    "genai-perf": GENAI_PERF,
    "llm-d": LLM_D,
}
AGGREGATE = "results/request_performance/aggregate"
GUIDELLM_MS = "benchmarks/0/metrics/time_to_first_token_ms/successful"


def changed(text: str, path: str, value: object) -> str:
    """The JSON text with the value at a path of keys replaced."""
    whole = json.loads(text)
    place: Any = whole
    *above, last = path.split("/")
    for key in above:
        place = place[int(key) if isinstance(place, list) else key]
    place[last] = value
    return json.dumps(whole)


@pytest.mark.parametrize(
    ("text", "path", "value", "expected"),
    [
        pytest.param(VLLM, "mean_ttft_ms", -1, "a number from 0 to 1e+10", id="negative"),
        pytest.param(VLLM, "mean_ttft_ms", "12", "a number from 0 to 1e+10", id="text"),
        pytest.param(VLLM, "mean_tpot_ms", True, "a number from 0 to 1e+10", id="boolean"),
        pytest.param(VLLM, "p99_itl_ms", float("nan"), "a number from 0 to 1e+10", id="not-a-number"),
        pytest.param(VLLM, "output_throughput", float("inf"), "a number from 0 to 1e+12", id="infinite"),
        pytest.param(VLLM, "duration", 1e30, "a number from 0 to 1e+07", id="absurd"),
        pytest.param(VLLM, "completed", 0, "an integer from 1", id="nothing-completed"),
        pytest.param(VLLM, "completed", 4e-289, "an integer from 1", id="a-fraction-completed"),
        pytest.param(VLLM, "request_rate", "fast", "a number from 0 to 1e+12", id="rate"),
        pytest.param(VLLM, "max_concurrency", 0, "a number above 0", id="no-concurrency"),
        pytest.param(VLLM, "model_id", 7, "a string", id="model"),
        pytest.param(VLLM, "latencies", [0.1] * 47 + ["x"], "a list of numbers from 0 to 1e+07", id="latencies"),
        pytest.param(READ_WHOLE["sglang"], "server_info", [1], "an object", id="server-info"),
        pytest.param(GUIDELLM, "benchmarks", {}, "a list of 1 to 1000 benchmarks", id="no-list"),
        pytest.param(GUIDELLM, "benchmarks", [], "a list of 1 to 1000 benchmarks", id="no-benchmarks"),
        pytest.param(GUIDELLM, f"{GUIDELLM_MS}/mean", "x", "a number from 0 to 1e+10", id="deep"),
        pytest.param(GUIDELLM, f"{GUIDELLM_MS}/percentiles/p99", -2, "a number from 0 to 1e+10", id="percentile"),
        pytest.param(AIPERF, "time_to_first_token/unit", "fortnights", "one of s, sec, seconds", id="unit"),
        pytest.param(AIPERF, "request_throughput/unit", "requests/min", "requests/sec", id="rate-unit"),
        pytest.param(AIPERF, "request_count/avg", 0, "a number above 0", id="no-requests"),
        pytest.param(AIPERF, "is_complete", False, "True", id="incomplete"),
        pytest.param(AIPERF, "was_cancelled", True, "False", id="cancelled"),
        pytest.param(AIPERF, "input_config/phases", "x", "a list", id="phases"),
        pytest.param(LLM_D, f"{AGGREGATE}/requests/failures", 48, "fewer than the total of 48", id="all-failed"),
        pytest.param(LLM_D, f"{AGGREGATE}/latency/time_to_first_token/units", "s/token/gpu", "one of s, sec", id="report-unit"),
        pytest.param(LLM_D, f"{AGGREGATE}/latency", [], "an object", id="report-latency"),
        pytest.param(GENAI_PERF, "input_config/perf_analyzer/stimulus/concurrency", -4, "a number from 0", id="stimulus"),
    ],
)
def test_a_wrong_field_is_named_with_what_was_expected(text: str, path: str, value: object, expected: str) -> None:
    with pytest.raises(PlannerError) as refused:
        read_sweep([VLLM, changed(text, path, value)])
    assert refused.value.field == f"/files/1/{path}"
    assert expected in (refused.value.expected or "")


@pytest.mark.parametrize(
    ("text", "field", "says"),
    [
        pytest.param("", "/files/0", "is empty", id="empty"),
        pytest.param(" \n\t", "/files/0", "is empty", id="blank"),
        pytest.param("{}", "/files/0", "no results file that is known", id="no-fields"),
        pytest.param('{"a": 1}', "/files/0", "begins with the fields a", id="other-object"),
        pytest.param("[]", "/files", "no measured point", id="no-documents"),
        pytest.param("[1]", "/files/0/0", "holds int", id="list-of-numbers"),
        pytest.param("null", "/files/0", "expected an object", id="null"),
        pytest.param("plain words", "/files/0", "expected an object", id="words"),
        pytest.param("a: b: c", "/files/0", "neither JSON nor YAML", id="no-yaml"),
        pytest.param("a: &x [1]\nb: *x", "/files/0", "an alias", id="alias"),
        pytest.param("a: 0x" + "f" * 9000, "/files/0", "an integer of 9002 digits", id="endless-yaml-integer"),
        pytest.param('{"a":' + "9" * 5000 + "}", "/files/0", "a number that cannot be read", id="endless-integer"),
        pytest.param("!!python/object/apply:os.getcwd []", "/files/0", "neither JSON nor YAML", id="yaml-code"),
        pytest.param('{"a":' + "[" * 100_000, "/files/0", "nested too deeply", id="deep-json"),
        pytest.param("a: " + "[" * 90_000, "/files/0", "nested too deeply", id="deep-yaml"),
        pytest.param(SGLANG + '{"tag"', "/files/0", "line 4", id="half-a-line"),
        pytest.param(SGLANG + "[1]", "/files/0/3/0", "holds int", id="other-line"),
        pytest.param("{" + " " * MAX_CHARACTERS, "/files/0", "characters", id="too-long"),
        pytest.param("a" * (MAX_YAML_CHARACTERS + 1), "/files/0", "characters", id="too-long-for-yaml"),
        pytest.param("\n".join([READ_WHOLE["sglang"]] * (MAX_POINTS + 1)), "/files/0", "more than 1000", id="too-many-points"),
    ],
)
def test_what_is_no_results_file_is_refused(text: str, field: str, says: str) -> None:
    began = time.process_time()
    with pytest.raises(InvalidInput, match=says) as refused:
        read_sweep([text])
    assert refused.value.field == field
    assert refused.value.expected
    assert len(refused.value.detail) < 400
    assert time.process_time() - began < 5


@pytest.mark.parametrize("texts", [pytest.param([], id="none"), pytest.param([VLLM] * (MAX_FILES + 1), id="too-many")])
def test_the_number_of_files_has_limits(texts: list[str]) -> None:
    with pytest.raises(InvalidInput, match="expected 1 to 200"):
        read_sweep(texts)


@pytest.mark.parametrize("text", READ_WHOLE.values(), ids=READ_WHOLE)
@given(share=st.floats(min_value=0.01, max_value=0.99))
def test_a_truncated_file_is_refused(text: str, share: float) -> None:
    with pytest.raises(InvalidInput):
        read_sweep([text[: int(len(text) * share)]])


MUTANTS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([0, -0.0, 1e-320, 1e7, 1e10, 1e12, 1e13, 1e308, float("inf"), float("nan"), 10**400]),
    st.floats(),
    st.text(max_size=5),
    st.lists(st.integers(), max_size=2),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)


def without_unread(text: str) -> str:
    """The first benchmark of a GuideLLM file without the parts that no reader looks at, so that mutants hit those it does."""
    whole = json.loads(text)
    if "benchmarks" in whole:
        (benchmark, *_) = whole["benchmarks"]
        read = {"request_totals", "prompt_token_count", "time_to_first_token_ms", "inter_token_latency_ms", "request_latency"}
        metrics = {name: benchmark["metrics"][name] for name in read | {"output_token_count", "requests_per_second"}}
        whole["benchmarks"] = [{"config": {"strategy": benchmark["config"]["strategy"]}, "metrics": metrics, "duration": 3.0}]
    return json.dumps(whole)


@pytest.mark.parametrize("text", [without_unread(each) for each in READ_WHOLE.values()], ids=READ_WHOLE)
@given(data=st.data())
def test_any_value_in_any_place_is_read_or_refused(text: str, data: st.DataObject) -> None:
    place: Any = json.loads(text)
    whole = place
    while True:
        key = data.draw(st.sampled_from(list(place) if isinstance(place, dict) else list(range(len(place)))))
        below = place[key]
        if not (isinstance(below, dict | list) and below) or data.draw(st.integers(0, 5)) == 0:
            break
        place = below
    place[key] = data.draw(MUTANTS)
    try:
        points = read_sweep([json.dumps(whole)]).points
    except PlannerError as error:
        field, points = error.field, ()
    else:
        field = "/files"
    assert field is not None
    assert field.startswith("/files")
    json.dumps([point.model_dump() for point in points], allow_nan=False)


@pytest.mark.parametrize(
    ("path", "value", "code"),
    [
        pytest.param("p99_ttft_ms", 1.0, "percentiles_out_of_order", id="percentiles"),
        pytest.param("output_throughput", 5000, "throughput_disagrees", id="throughput"),
        pytest.param("mean_tpot_ms", 900, "latencies_disagree", id="tpot"),
        pytest.param("max_concurrency", 1, "in_flight_above_concurrency", id="concurrency"),
        pytest.param("failed", 3, "requests_failed", id="failures"),
    ],
)
def test_a_file_that_contradicts_itself_is_read_with_a_warning(path: str, value: float, code: str) -> None:
    assert [note.code for note in read_sweep([changed(VLLM, path, value)]).notes] == [code]


def test_points_of_two_models_are_no_sweep() -> None:
    sweep = read_sweep([VLLM, changed(VLLM, "model_id", "another")])
    assert [note.code for note in sweep.notes] == ["several_models"]


def test_a_latency_of_nothing_is_unknown() -> None:
    """vLLM writes 0 for the TPOT of answers of one token."""
    (point,) = read_sweep([changed(VLLM, "mean_tpot_ms", 0)]).points
    assert point.tpot.mean_s is None
    assert point.tpot.p99_s is None


def test_a_long_run_with_every_request_listed_is_read_quickly() -> None:
    whole = json.loads(VLLM) | {"completed": 50_000, "latencies": [0.25] * 50_000, "itls": [[0.01] * 20] * 10_000}
    text = json.dumps(whole)
    began = time.process_time()
    assert len(read_sweep([text]).points) == 1
    assert time.process_time() - began < 3


def test_all_formats_are_covered_here() -> None:
    assert set(READ_WHOLE) == set(CLOSED_LOOPS)
