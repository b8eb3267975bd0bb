"""Room for low-rank adapters, which engines allocate beside the weights when the model is loaded."""

from app.domain.deployment import Deployment, LoraSlots
from app.domain.llm import LayerGroup, Llm
from app.domain.loaded_weights import TORCH_ENGINES, LoadedPart, LoadedWeights

ADAPTER_BYTES = 2
"""Adapters are kept in the model's 16 bits (`lora_dtype` auto)."""


def adapter_params_of_layer(group: LayerGroup, hidden: int, lora: LoraSlots, *, tp: int, expert_shards: int, whole_experts: bool) -> int:
    """Elements of one layer's slots on one rank.

    slots x rank x sum over projections of (input + output), on the rank: queries, keys and values, gate and up have one pair of matrices
    each, whose outputs are divided by tp; the inputs of output and down projections are. Routed experts have pairs of their own. Valid
    for grouped-query attention and feed-forward parts; other mixers are not counted. Source:
    https://github.com/vllm-project/vllm/blob/main/vllm/lora/layers/base_linear.py (create_lora_weights; not `fully_sharded_loras`).
    """
    widths = 0
    mixer = group.mixer
    if mixer is not None and mixer.kind == "attention":
        kv_heads = 0 if mixer.shares_kv else max(1, mixer.num_kv_heads // tp)
        query, output = mixer.num_heads * mixer.key_head_dim // tp, mixer.num_heads * mixer.value_head_dim // tp
        widths += 3 * hidden + query + kv_heads * (mixer.key_head_dim + mixer.value_head_dim) + output + hidden
    for part in group.feed_forward:
        shards, copies, inner = tp, 1, part.intermediate_size
        if part.kind == "moe":
            shards = 1 if whole_experts else expert_shards
            copies = -(-part.num_experts // expert_shards) if whole_experts else part.num_experts
            if part.shared_intermediate_size:
                widths += part.num_matrices * (hidden + -(-part.shared_intermediate_size // tp))
        widths += copies * part.num_matrices * (hidden + -(-inner // shards))
    return lora.num_slots * lora.max_rank * widths


def with_adapters(loaded: LoadedWeights, llm: Llm, deployment: Deployment) -> LoadedWeights:
    """The loaded weights with the slots of the deployment, on every stage; unchanged where there are none, or no layers are known."""
    lora, hidden = deployment.lora, llm.hidden_size
    if lora is None or hidden is None or not llm.layer_groups or deployment.engine not in TORCH_ENGINES:
        return loaded
    tp, shards = deployment.tp, deployment.tp * deployment.dp
    elements = sum(
        group.num_layers * adapter_params_of_layer(group, hidden, lora, tp=tp, expert_shards=shards, whole_experts=deployment.ep > 1)
        for group in llm.layer_groups
    )
    share = -(-llm.num_layers // deployment.pp) / llm.num_layers
    added = round(ADAPTER_BYTES * elements * share)
    return loaded._replace(
        bytes_per_gpu=loaded.bytes_per_gpu + added,
        low_bytes_per_gpu=loaded.low_bytes_per_gpu + added,
        high_bytes_per_gpu=loaded.high_bytes_per_gpu + added,
        parts=(*loaded.parts, LoadedPart("lora", added)) if loaded.parts else (),
        stage_bytes=tuple(stage + added for stage in loaded.stage_bytes),
    )
