"""What a deployment's speed is put together from."""

import pytest

from app.domain.deployment import Deployment
from app.domain.performance import Lengths, performance_of
from app.domain.step_constants import SERVER_CONSTANTS
from tests.domain.shapes import BUNDLED, CATALOG

LLM, GPU = CATALOG.model("llama-3.1-70b"), CATALOG.gpu("h100-sxm-80gb")


def test_a_run_without_a_server_waits_for_none() -> None:
    deployment, lengths = Deployment(tp=4, weights="fp8"), Lengths(1000, 100)
    served, offline = (performance_of(LLM, GPU, deployment, None, BUNDLED.steps, lengths, load=load) for load in ("served", "offline"))
    assert all(getattr(offline.constants, name) == 0 < getattr(served.constants, name) for name in SERVER_CONSTANTS)
    assert offline.serving.closed(8).waiting.server_s == 0


@pytest.mark.parametrize(
    ("deployment", "limit", "places"),
    [
        ({"tp": 4, "weights": "fp8", "max_num_seqs": 7, "dp": 2}, "max_num_seqs", 14),
        ({"tp": 4, "weights": "fp8"}, "kv_cache", None),
        ({"tp": 1, "weights": "bf16"}, "kv_cache", 0),
    ],
)
def test_places_are_what_cache_and_scheduler_hold(deployment: dict[str, int], limit: str, places: int | None) -> None:
    of = performance_of(LLM, GPU, Deployment.model_validate(deployment), None, BUNDLED.steps, Lengths(4000, 500))
    assert of.places_limit == limit
    held = of.found.sequences(4000 + of.constants.held_output_ratio * 500) if of.found.holds_requests else 0
    assert of.places == (held if places is None else places)


def test_classes_without_rows_say_so() -> None:
    known = performance_of(LLM, GPU, Deployment(tp=4, weights="fp8", engine="vllm"), CATALOG.engine("vllm"), BUNDLED.steps, Lengths(10, 10))
    other = performance_of(LLM, CATALOG.gpu("mi300x-192gb"), Deployment(tp=4), None, BUNDLED.steps, Lengths(10, 10))
    assert (known.is_fitted, other.is_fitted) == (True, False)
    bands = [of.model.band(of.step_class, "tpot") for of in (known, other)]
    assert bands[0].high_ratio / bands[0].low_ratio < bands[1].high_ratio / bands[1].low_ratio
