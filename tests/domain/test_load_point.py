"""One measured point: Little's law, and what figures of one run must have to do with each other."""

import pytest

from app.domain.load_point import Latency, LoadPoint, disagreements

GOOD = LoadPoint(
    tool="vllm",
    concurrency=8,
    num_completed=400,
    num_failed=0,
    mean_output_tokens=101,
    requests_per_s=4,
    output_tokens_per_s=404,
    ttft=Latency(mean_s=0.5, p50_s=0.4, p90_s=0.8, p95_s=0.9, p99_s=1.1),
    tpot=Latency(mean_s=0.0145, p50_s=0.0145, p99_s=0.02),
    e2e=Latency(mean_s=1.95, p50_s=1.9, p99_s=2.5),
)


def codes(point: LoadPoint) -> list[str]:
    return [note.code for note in disagreements(point, within="point 1")]


def test_requests_in_flight_follow_littles_law() -> None:
    assert GOOD.in_flight == pytest.approx(4 * 1.95)
    assert GOOD.model_copy(update={"requests_per_s": None}).in_flight is None
    assert GOOD.model_copy(update={"e2e": Latency()}).in_flight is None


def test_figures_that_fit_each_other_pass() -> None:
    assert codes(GOOD) == []
    assert codes(LoadPoint(tool="aiperf")) == []


@pytest.mark.parametrize(
    ("change", "code", "says"),
    [
        pytest.param(
            {"ttft": Latency(p50_s=1.5, p90_s=1)}, "percentiles_out_of_order", "p50 of ttft 1.5 s is above its p90 1 s", id="falling"
        ),
        pytest.param({"itl": Latency(p90_s=2, p99_s=1)}, "percentiles_out_of_order", "p90 of itl", id="falling-with-a-gap"),
        pytest.param({"ttft": Latency(p99_s=3)}, "part_above_whole", "p99 of ttft 3 s is above that of e2e 2.5 s", id="part"),
        pytest.param({"tpot": Latency(mean_s=1.95 / 101 * 1.4)}, "latencies_disagree", "in the unit", id="tpot-with-ttft"),
        pytest.param({"tpot": Latency(mean_s=14.5)}, "latencies_disagree", "over 101 output tokens", id="milliseconds-as-seconds"),
        pytest.param({"output_tokens_per_s": 40_400}, "throughput_disagrees", "are not the 40400 output tokens/s", id="tokens-per-s"),
        pytest.param({"concurrency": 4}, "in_flight_above_concurrency", "keep 7.8 in flight", id="little"),
        pytest.param({"num_failed": 7}, "requests_failed", "7 requests failed beside 400", id="failures"),
    ],
)
def test_figures_that_cannot_all_be_true_are_said(change: dict[str, object], code: str, says: str) -> None:
    (note,) = disagreements(GOOD.model_copy(update=change), within="point 3")
    assert note.code == code
    assert note.message.startswith("point 3: ")
    assert says in note.message
