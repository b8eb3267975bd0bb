"""Tensors of a model: their classes sum to its parameters, and what each rank holds of them."""

import pytest

from app.domain.attention import Attention, LatentAttention
from app.domain.feed_forward import MoeFeedForward
from app.domain.tensors import Tensor
from tests.domain.shapes import BUNDLED

WITH_GROUPS = sorted(slug for slug, model in BUNDLED.models.items() if model.layer_groups is not None)


def test_all_models_but_two_have_layers() -> None:
    assert len(WITH_GROUPS) == 340


@pytest.mark.parametrize("slug", WITH_GROUPS)
def test_classes_sum_to_all_parameters(slug: str) -> None:
    model = BUNDLED.models[slug]
    by_class = model.num_params_by_class()
    assert sum(by_class.values()) == model.num_params
    assert by_class.get("experts", 0) + by_class.get("expert_bias", 0) == model.num_expert_params
    assert by_class.get("vision", 0) == (model.num_vision_params or 0)


@pytest.mark.parametrize("slug", WITH_GROUPS)
def test_ranks_hold_everything_and_nothing_twice_but_what_is_replicated(slug: str) -> None:
    model = BUNDLED.models[slug]
    for group in model.layer_groups or ():
        for tensor in group.tensors(model.hidden_size or 0):
            for tp in (1, 2, 4, 8):
                held = tp * tensor.on_rank(tp)
                copies = tp / min(tp, tensor.num_kv_heads)
                needed = tensor.split + copies * tensor.kv + tp * tensor.whole
                assert needed <= held < needed + 2 * tp + copies


def test_key_and_value_heads_are_copied_below_one_per_rank() -> None:
    qkv = Attention(num_heads=8, num_kv_heads=2, key_head_dim=4, value_head_dim=4).tensors(32)[0]
    assert (qkv.split, qkv.kv) == (32 * 8 * 4, 2 * 32 * 2 * 4)
    assert [qkv.on_rank(tp) for tp in (1, 2, 4)] == [1024 + 512, 512 + 256, 256 + 256]


def test_down_projections_of_latent_attention_are_on_every_rank() -> None:
    mixer = LatentAttention(num_heads=8, q_lora_rank=6, kv_lora_rank=4, qk_nope_head_dim=2, qk_rope_head_dim=1, v_head_dim=2)
    down = mixer.tensors(16)[0]
    assert down.on_rank(8) == down.num_params == 16 * (6 + 4 + 1)
    assert [tensor.num_params for tensor in mixer.tensors(16) if tensor.expands_latent] == [4 * 8 * (2 + 2)]


def test_experts_are_two_stacks() -> None:
    stacks = [t for t in MoeFeedForward(num_experts=4, num_experts_per_token=2, intermediate_size=3).tensors(5) if t.stack]
    assert [(t.num_params, t.stack) for t in stacks] == [(4 * 2 * 5 * 3, (4, 2, 5, 3)), (4 * 5 * 3, (4, 1, 5, 3))]


def test_an_empty_tensor_is_left_out() -> None:
    assert all(tensor.num_params for tensor in Attention(num_heads=1, num_kv_heads=1, key_head_dim=2, value_head_dim=2).tensors(2))
    assert Tensor("small").num_params == 0
