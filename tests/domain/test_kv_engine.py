"""What engines reserve for one sequence, for every model of the catalog up to its longest context."""

import pytest

from app.domain.deployment import Deployment
from app.domain.kv_engine import kv_in_engine
from app.services import estimates
from app.services.requests import KvRequest
from tests.domain.engines import engine
from tests.domain.shapes import BUNDLED, CATALOG, DETAILED


@pytest.mark.parametrize("slug", sorted(BUNDLED.models))
def test_every_model_is_answered_from_4k_to_its_longest_context(slug: str) -> None:
    longest = BUNDLED.models[slug].max_model_len_tokens or 131072
    lengths = sorted({min(4096, longest), longest})
    for name in ("vllm", "sglang", "tensorrt-llm", "llama.cpp"):
        answer = estimates.kv(CATALOG, KvRequest.model_validate({"model": slug, "engine": name, "context_tokens": lengths}))
        assert [row.context_tokens for row in answer.by_context] == lengths
        assert len(answer.in_engine) in (0, len(lengths))
        reserved = [row.reserved_bytes_per_gpu for row in answer.in_engine]
        assert reserved == sorted(reserved)


def test_a_dense_model_reserves_whole_blocks() -> None:
    rows, _ = kv_in_engine(BUNDLED.models["llama-3.1-8b"], Deployment(engine="vllm"), engine("vllm", "0.19.0"), [1000], None)
    assert (rows[0].num_blocks, rows[0].reserved_bytes_per_gpu, rows[0].needed_bytes_per_gpu) == (63, 63 * 2**21, 131072 * 1000)


def test_detailed_models_have_rows() -> None:
    rules = engine("vllm", "0.25.0")
    assert all(all(kv_in_engine(llm, Deployment(engine="vllm"), rules, [4096], None)) for llm in DETAILED)
