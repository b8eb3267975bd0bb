"""A model: what cannot be true is refused, and what is summed over its layers."""

from typing import Any

import pytest
from pydantic import ValidationError

from app.domain.attention import Attention
from app.domain.feed_forward import DenseFeedForward, MoeFeedForward
from app.domain.llm import LayerGroup, Llm, most_attention_heads
from app.domain.recurrent import LightningAttention


def attending(heads: int) -> LayerGroup:
    return LayerGroup(num_layers=1, mixer=Attention(num_heads=heads, num_kv_heads=1, key_head_dim=8, value_head_dim=8))


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"num_active_params": 101}, "num_active_params 101 is more than num_params 100"),
        ({"layer_groups": ()}, "at least one layer"),
        ({"slug": "Capital"}, "slug"),
    ],
)
def test_a_model_that_contradicts_itself_is_refused(changed: dict[str, Any], told: str) -> None:
    with pytest.raises(ValidationError, match=told):
        Llm.model_validate({"slug": "m", "num_params": 100, "num_active_params": 100, **changed})


def test_no_more_experts_work_than_there_are() -> None:
    with pytest.raises(ValidationError, match="num_experts_per_token 9 is more than num_experts 8"):
        MoeFeedForward(num_experts=8, num_experts_per_token=9, intermediate_size=4)


def test_the_most_heads_are_those_of_the_layers_that_attend() -> None:
    recurrent = LayerGroup(num_layers=9, mixer=LightningAttention(num_heads=64, head_dim=8))
    assert most_attention_heads([attending(8), recurrent, attending(16)]) == 16
    assert most_attention_heads([recurrent, LayerGroup(num_layers=1)]) is None


def test_parameters_are_summed_over_embeddings_layers_and_head() -> None:
    dense, moe = DenseFeedForward(intermediate_size=10), MoeFeedForward(num_experts=4, num_experts_per_token=1, intermediate_size=10)
    groups = (LayerGroup(num_layers=2, feed_forward=(dense,)), LayerGroup(num_layers=3, feed_forward=(moe,), num_norm_params=5))
    llm = Llm(slug="m", num_params=10**6, num_active_params=1, hidden_size=8, vocab_size=100, tie_word_embeddings=True, layer_groups=groups)
    expert, router = 3 * 8 * 10, 4 * 8
    assert llm.num_language_params() == 100 * 8 + 2 * expert + 3 * (4 * expert + router + 5)
    assert llm.num_language_params(active=True) == 100 * 8 + 2 * expert + 3 * (expert + router + 5)
    assert llm.num_expert_params == 3 * 4 * expert
    untied = llm.model_copy(update={"tie_word_embeddings": False, "lm_head_bias": True})
    assert untied.num_language_params() == 100 * 8 + 100 + 100 * 8 + 2 * expert + 3 * (4 * expert + router + 5)
    assert llm.model_copy(update={"vocab_size": None}).num_language_params() is None
