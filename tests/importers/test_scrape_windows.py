"""Time, restarts, several engines and several models of scrapes."""

import contextlib
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.errors import InvalidInput
from app.importers.scrapes import COMPANIONS, read_scrapes
from tests.importers.scrape_files import SECONDS, pair, read

BASE = 1_700_000_000


def engine(requests: float, *, running: float = 4, labels: str = "", stamp: str = "", start: float = 0) -> str:
    """A small scrape of vLLM: so many requests finished, each with 100 tokens after a TTFT of 1 s."""
    own = ",".join(filter(None, ['model_name="m"', labels]))
    ttft = "vllm:time_to_first_token_seconds"
    values = {
        f'vllm:request_success_total{{finished_reason="stop",{own}}}': requests,
        f"vllm:generation_tokens_total{{{own}}}": requests * 100,
        f"vllm:num_requests_running{{{own}}}": running,
        f'{ttft}_bucket{{le="0.5",{own}}}': 0,
        f'{ttft}_bucket{{le="1.5",{own}}}': requests,
        f"{ttft}_count{{{own}}}": requests,
        f"{ttft}_sum{{{own}}}": requests,
    } | ({"process_start_time_seconds": start} if start else {})
    return "".join(f"{series} {value}{stamp}\n" for series, value in values.items())


def stamped(requests: float, at: float, start: float = 0) -> str:
    return engine(requests, stamp=f" {int(at * 1000)}", start=start)


def codes(*texts: str, seconds: float | None = None) -> set[str]:
    return {note.code for note in read(*texts, seconds=seconds).notes}


def test_rates_are_increases_over_the_seconds_and_gauges_the_mean_of_both() -> None:
    found = read(engine(10, running=2), engine(70, running=6), seconds=30).whole
    assert (found.request_rps, found.output_tokens_per_s, found.num_running_requests) == (2, 200, 4)
    assert found.ttft_mean_s == 1


def test_the_seconds_are_taken_from_timestamps_where_the_request_says_none() -> None:
    scraped = read(stamped(10, BASE), stamped(70, BASE + 20))
    assert (scraped.seconds, scraped.whole.request_rps) == (20, 3)
    assert "seconds_from_text" in {note.code for note in scraped.notes}


def test_the_seconds_are_taken_from_a_clock_where_there_is_one() -> None:
    first, last = (engine(requests) + f"node_time_seconds {BASE + at}\n" for requests, at in ((10, 0), (70, 20)))
    assert read(first, last).seconds == 20


def test_seconds_that_the_text_contradicts_are_said() -> None:
    assert "seconds_disagree" in codes(stamped(10, BASE), stamped(70, BASE + 20), seconds=60)
    assert "seconds_disagree" not in codes(stamped(10, BASE), stamped(70, BASE + 20), seconds=21)


@pytest.mark.parametrize(
    ("texts", "seconds", "field", "said"),
    [
        ([], None, "/prometheus/scrapes", "0 scrapes"),
        ([engine(1)] * 3, 60, "/prometheus/scrapes", "3 scrapes"),
        ([engine(1), engine(2)], None, "/prometheus/seconds_between", "do not tell the time"),
        ([engine(1), engine(2)], 0, "/prometheus/seconds_between", "no time between"),
        ([engine(1), engine(2)], -60, "/prometheus/seconds_between", "no time between"),
        ([engine(1), engine(2)], float("nan"), "/prometheus/seconds_between", "no time between"),
        ([engine(1), engine(2)], float("inf"), "/prometheus/seconds_between", "no time between"),
        ([engine(1)], 60, "/prometheus/seconds_between", "there is one"),
        ([stamped(1, BASE + 9), stamped(2, BASE)], None, "/prometheus/scrapes", "before the first"),
        (["up 1\n"], None, "/prometheus/scrapes/0", "No metric of a known engine"),
        ([engine(1), "up 1\n"], 60, "/prometheus/scrapes/1", "No metric of a known engine"),
        ([engine(1), "tgi_queue_size 1\n"], 60, "/prometheus/scrapes/1", "first scrape is of vllm, the second of tgi"),
        ([engine(1), "oops\n"], 60, "/prometheus/scrapes/1", "Line 1 is no sample"),
        ([engine(9), engine(2)], 60, "/prometheus/scrapes/1", "wrong way round"),
    ],
)
def test_what_makes_no_window_is_refused(texts: list[str], seconds: float | None, field: str, said: str) -> None:
    with pytest.raises(InvalidInput, match=said) as refused:
        read(*texts, seconds=seconds)
    assert refused.value.field == field
    assert refused.value.expected


def test_a_restart_names_the_counter_that_fell() -> None:
    with pytest.raises(InvalidInput) as refused:
        read(*reversed(pair("vllm_0.33_saturated")), seconds=SECONDS)
    assert "vllm:e2e_request_latency_seconds_bucket" in str(refused.value.value)


def test_after_a_restart_the_window_begins_with_it_where_its_time_is_known() -> None:
    first, last = stamped(500, BASE, start=BASE - 3600), stamped(40, BASE + 60, start=BASE + 40)
    scraped = read(first, last, seconds=60)
    assert (scraped.seconds, scraped.whole.request_rps) == (20, 2)
    assert "restarted" in {note.code for note in scraped.notes}


def test_a_restart_shows_in_the_start_time_too() -> None:
    first, last = stamped(5, BASE, start=BASE - 3600), stamped(40, BASE + 60, start=BASE + 40)
    assert "restarted" in codes(first, last, seconds=60)


def test_one_scrape_is_a_lifetime_and_has_rates_where_its_length_is_known() -> None:
    plain = read(engine(120))
    assert (plain.whole.request_rps, plain.whole.ttft_mean_s, plain.whole.num_running_requests) == (None, 1, 4)
    aged = read(stamped(120, BASE + 60, start=BASE))
    assert (aged.seconds, aged.whole.request_rps, aged.whole.uptime_s) == (60, 2, 60)
    assert all("lifetime averages" in scraped.notes[0].message for scraped in (plain, aged))


def test_a_window_in_which_nothing_finished_has_gauges_and_rates_of_zero() -> None:
    scraped = read(engine(10), engine(10, running=8), seconds=60)
    found = scraped.whole
    assert {name: found.get(name) for name in found.measured()} == {
        "num_running_requests": 6,
        "request_rps": 0,
        "output_tokens_per_s": 0,
    }
    assert "no_request_finished" in {note.code for note in scraped.notes}


def two(first: float, second: float, label: str = 'engine="{}"') -> str:
    return engine(first, labels=label.format(0), running=2) + engine(second, labels=label.format(1), running=6)


@given(
    before=st.tuples(st.integers(0, 10**6), st.floats(0, 1e5)),
    growth=st.tuples(st.integers(0, 10**6), st.floats(0, 1e5)),
    seconds=st.floats(1e-3, 1e6),
)
def test_figures_of_any_two_scrapes_are_in_range(before: tuple[int, float], growth: tuple[int, float], seconds: float) -> None:
    first, last = engine(before[0], running=before[1]), engine(before[0] + growth[0], running=before[1] + growth[1])
    found = read(first, last, seconds=seconds).whole
    assert found.request_rps == pytest.approx(growth[0] / seconds)
    assert all((found.get(name) or 0) >= 0 for name in found.measured())


@pytest.mark.parametrize("label", ['engine="{}"', 'pod="vllm-{}"', 'instance="10.0.0.{}:8000"', 'ReplicaId="{}"'])
def test_several_engines_are_told_apart_and_their_whole_is_the_mean(label: str) -> None:
    scraped = read(two(0, 0, label), two(30, 90, label), seconds=30)
    assert [each.request_rps for _, each in scraped.replicas] == [1, 3]
    assert (scraped.whole.request_rps, scraped.whole.num_running_requests) == (2, 4)
    assert (scraped.whole.num_replicas, scraped.whole.max_replica_traffic_ratio) == (2, 0.75)
    message = {note.code: note.message for note in scraped.notes}["several_engines"]
    assert "2 engines" in message
    assert "means per engine" in message


def test_replicas_have_names() -> None:
    label = 'namespace="llm",pod="vllm-{0}",engine="{0}"'
    assert [name for name, _ in read(two(1, 1, label)).replicas] == ["llm, vllm-0, engine 0", "llm, vllm-1, engine 1"]


def test_one_replica_that_restarted_is_left_out() -> None:
    scraped = read(two(100, 10, 'pod="p{}"'), two(4, 70, 'pod="p{}"'), seconds=30)
    assert [name for name, _ in scraped.replicas] == ["p1"]
    assert scraped.whole.request_rps == 2
    assert "p0" in {note.code: note.message for note in scraped.notes}["restarted"]


def test_a_replica_that_came_or_went_is_left_out_and_named() -> None:
    """Of what is new it is not known what it did before the first scrape: all its life is not what happened between the two."""
    one, both = engine(10, labels='pod="p0"'), two(40, 4000, 'pod="p{}"')
    came = read(one, both, seconds=30)
    assert ([name for name, _ in came.replicas], came.whole.request_rps) == (["p0"], 1)
    assert "p1" in {note.code: note.message for note in came.notes}["new_engines"]
    went = read(two(10, 20, 'pod="p{}"'), engine(40, labels='pod="p0"'), seconds=30)
    assert "p1" in {note.code: note.message for note in went.notes}["gone_engines"]


def test_scrapes_of_two_pods_are_no_pair() -> None:
    with pytest.raises(InvalidInput, match="under the same labels") as refused:
        read(engine(10, labels='pod="p0"'), engine(40, labels='pod="p1"'), seconds=30)
    assert (refused.value.field, refused.value.value) == ("/prometheus/scrapes/1", "p1")


def test_series_that_engines_behind_one_endpoint_share_count_for_the_whole_only() -> None:
    """SGLang with data parallelism: schedulers have a rank, the tokenizer's counters and latencies have none."""

    def text(requests: float) -> str:
        ranks = "".join(f'sglang:num_running_reqs{{model_name="m",dp_rank="{rank}",tp_rank="{rank}"}} {10 + rank}\n' for rank in (0, 1))
        return ranks + f'sglang:num_requests_total{{model_name="m",is_streaming="true"}} {requests}\n'

    scraped = read(text(0), text(60), seconds=30)
    assert [each.num_running_requests for _, each in scraped.replicas] == [10, 11]
    assert [each.request_rps for _, each in scraped.replicas] == [None, None]
    assert (scraped.whole.num_running_requests, scraped.whole.request_rps) == (10.5, 1)
    assert scraped.whole.max_replica_traffic_ratio is None


def test_of_ranks_that_work_on_the_same_requests_the_lowest_is_read() -> None:
    text = "".join(f'sglang:num_running_reqs{{model_name="m",pp_rank="0",tp_rank="{rank}"}} 7\n' for rank in range(4))
    assert read(text).whole.num_running_requests == 7


def test_a_breakdown_by_priority_is_not_added_to_the_total() -> None:
    text = "".join(f'sglang:num_queue_reqs{{model_name="m",priority="{each}"}} {count}\n' for each, count in (("", 9), ("1", 4), ("2", 5)))
    assert read(text).whole.num_waiting_requests == 9


MODELS = engine(10).replace('"m"', '"small"') + engine(90).replace('"m"', '"large"')


def test_of_several_models_the_caller_names_one() -> None:
    with pytest.raises(InvalidInput, match="large, small") as refused:
        read(MODELS)
    assert (refused.value.field, refused.value.expected) == ("/prometheus/model_name", "one of large, small")
    scraped = read(MODELS, MODELS.replace(" 90", " 150"), seconds=60, model_name="large")
    assert (scraped.model, scraped.whole.request_rps) == ("large", 1)
    with pytest.raises(InvalidInput, match="holds large, small"):
        read(MODELS, model_name="huge")


def test_metrics_of_a_companion_in_the_engines_text_are_said_and_read_when_asked_for() -> None:
    both = "DCGM_FI_DEV_GPU_UTIL 50\n" + engine(1)
    scraped = read(both)
    assert scraped.engine == "vllm"
    assert "dcgm" in {note.code: note.message for note in scraped.notes}["companion_not_read"]
    beside = read_scrapes(both, None, pointer="/dcgm", maps=COMPANIONS)
    assert (beside.engine, beside.whole.gpu_utilization_ratio) == ("dcgm", 0.5)


def test_texts_of_several_processes_may_stand_together() -> None:
    """Each has its own start and CPU time under one name: whose is whose is not known."""
    processes = "".join(f"process_start_time_seconds {BASE + at}\nprocess_cpu_seconds_total {at}\n" for at in (1, 2))
    scraped = read(stamped(1, BASE + 60) + processes + "DCGM_FI_DEV_GPU_UTIL 50\n")
    assert (scraped.engine, scraped.seconds, scraped.whole.uptime_s) == ("vllm", None, None)


def test_models_of_what_stands_beside_the_engine_are_not_its_own() -> None:
    assert read(engine(1) + 'inference_objective_request_total{model_name="alias"} 3\n').model == "m"


def test_a_text_alone_is_refused_at_its_own_place() -> None:
    with pytest.raises(InvalidInput) as refused:
        read_scrapes("oops", None, pointer="/prometheus")
    assert refused.value.field == "/prometheus"


def test_of_two_kinds_of_engines_the_one_with_more_series_is_read_and_said() -> None:
    scraped = read("tgi_queue_size 1\n" + engine(1))
    assert scraped.engine == "vllm"
    assert "tgi" in {note.code: note.message for note in scraped.notes}["several_kinds"]


@pytest.mark.parametrize(
    ("requests", "stay_s", "expected"), [(60, 5.0, 5.0), (60, 20.0, 4.0), (20, 5.0, 4.0)], ids=["many", "long-stays", "few-requests"]
)
def test_the_running_batch_is_a_mean_over_the_time_where_many_requests_ended_in_it(requests: int, stay_s: float, expected: float) -> None:
    """60 requests that ran for 5 s each within 60 s are 5 at a time on average, whatever two moments of the gauge show."""

    def text(finished: int) -> str:
        name = "vllm:request_inference_time_seconds"
        own = f'{name}_bucket{{model_name="m",le="+Inf"}} {finished}\n{name}_count{{model_name="m"}} {finished}\n'
        return engine(finished) + own + f'{name}_sum{{model_name="m"}} {finished * stay_s}\n'

    assert read(text(0), text(requests), seconds=60).whole.num_running_requests == expected


VALUES = st.one_of(st.floats().map(str), st.integers(-(10**320), 10**320).map(str), st.sampled_from(["NaN", "+Inf", "", "x", "0"]))


@given(
    edits=st.lists(st.tuples(st.integers(0, 1), st.integers(0, 13), VALUES), max_size=8),
    seconds=st.one_of(st.none(), st.floats(1e-300, 1e300)),
)
def test_whatever_the_values_are_there_are_metrics_or_a_refusal(edits: list[tuple[int, int, str]], seconds: float | None) -> None:
    texts = [two(10, 20), two(50, 60)]
    for which, number, value in edits:
        lines = texts[which].splitlines()
        lines[number] = f"{lines[number].rsplit(' ', 1)[0]} {value}"
        texts[which] = "\n".join(lines) + "\n"
    with contextlib.suppress(InvalidInput):
        whole = read(*texts, seconds=seconds).whole
        levels = [found for level in ("p50", "p90", "p95", "p99") if (found := whole.latency("ttft", level)) is not None]
        assert levels == sorted(levels)
        assert all(math.isfinite(whole.get(name) or 0) for name in whole.measured())
