"""What engines allocate beside the weights while they load a model, and print as part of them."""

from app.domain.llm import Llm

ROTARY_BYTES = {"vllm": 2, "sglang": 4, "tensorrt-llm": 4}
"""Bytes per entry of the sine and cosine table that the engine makes beside the weights: in the model's precision, or in single.
https://github.com/vllm-project/vllm/blob/main/vllm/model_executor/layers/rotary_embedding/base.py,
https://github.com/sgl-project/sglang/tree/main/python/sglang/srt/layers (rotary_embedding),
https://github.com/NVIDIA/TensorRT-LLM/blob/main/tensorrt_llm/_torch/attention_backend/interface.py (create_rope_const_params)."""
GATED_ROTARY_RATIO = 0.25
"""Share of the head that rotates in models whose queries are gated (partial_rotary_factor of Qwen3-Next and its successors).
https://huggingface.co/Qwen/Qwen3-Next-80B-A3B-Instruct/blob/main/config.json."""
MULTIMODAL_ROTARY = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_5")
"""Model types whose positions are of several dimensions (mrope_section in their configuration)."""
MULTIMODAL_ROTARY_FACTOR = 4
"""vLLM makes their table so many times longer, for the positions of videos.
https://github.com/vllm-project/vllm/blob/main/vllm/model_executor/layers/rotary_embedding/mrope.py."""
LOCAL_ROTARY = ("gemma3", "olmo3", "mimo_v2")
"""Model types whose windowed layers rotate with another base or scaling, so that they have a table of their own.
https://huggingface.co/google/gemma-3-27b-it/blob/main/config.json (rope_local_base_freq)."""
DEEPSTACK = ("qwen3_vl",)
"""Model types that add features of the vision tower to several layers, from one buffer of batched tokens x hidden for each.
https://github.com/vllm-project/vllm/blob/main/vllm/model_executor/models/qwen3_vl.py (deepstack_input_embeds)."""
DEEPSTACK_LEVELS = 3
"""Layers that they are added to (deepstack_visual_indexes of the published configurations)."""

UNIFIED_LOAD_BYTES = {"sglang": 408021893}
"""What engines that measure free memory find used by loading besides weights where host and device share it (0.38 GiB).
0.33 to 0.41 GiB in five starts of SGLang on GB10 with models of 3 and 15 GiB; not seen on devices with memory of their own.
https://github.com/jethac/dgx-spark-hijinks/tree/29166059ba96e77d33f60b7fd0e8032a40ab87e4/results (server logs of June 2026)."""


def rotary_table_bytes(llm: Llm, engine: str) -> int:
    """Tables of sines and cosines on every rank: sum over distinct tables of longest context x rotary width x bytes [bytes].

    None for learned positions, and for engines that compute them on the way.

    >>> rotary_table_bytes(Llm(slug="m", num_params=1, num_active_params=1), "vllm")
    0
    """
    if llm.num_position_embeddings:
        return 0
    kind = llm.model_type or ""
    tables = set()
    for group in llm.layer_groups or ():
        mixer = group.mixer
        if mixer is not None and mixer.kind == "attention":
            local = kind.startswith(LOCAL_ROTARY) and mixer.window_tokens is not None
            tables.add((int(mixer.key_head_dim * (GATED_ROTARY_RATIO if mixer.query_gate else 1)), local))
        elif mixer is not None and mixer.kind == "latent_attention":
            tables.add((mixer.qk_rope_head_dim, False))
    factor = MULTIMODAL_ROTARY_FACTOR if engine == "vllm" and kind.startswith(MULTIMODAL_ROTARY) else 1
    return factor * (llm.max_model_len_tokens or 0) * sum(width for width, _ in tables) * ROTARY_BYTES.get(engine, 0)


def deepstack_bytes(llm: Llm, engine: str, max_num_batched_tokens: int) -> int:
    """Buffers for features of the vision tower in 16 bits: levels x batched tokens x hidden x 2 [bytes]."""
    if engine != "vllm" or not (llm.model_type or "").startswith(DEEPSTACK):
        return 0
    return DEEPSTACK_LEVELS * max_num_batched_tokens * (llm.hidden_size or 0) * 2
