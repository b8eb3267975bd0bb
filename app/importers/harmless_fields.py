"""Fields of a config.json that change neither the number of parameters nor what a sequence keeps in memory.

The list was decided from published configurations: fields that the common configuration class writes for every model
(https://github.com/huggingface/transformers/blob/main/src/transformers/configuration_utils.py), token ids, positions, initialisation,
training losses, and the run-time choices of the public implementations. A field that is in no list is refused.
"""

from collections.abc import Mapping

_SUFFIXES = ("_token_id", "_token_ids", "_token_index", "_dropout", "_dropout_prob", "_pdrop", "_eps", "_epsilon", "_theta", "_loss_coef")

_OF_EVERY_CONFIGURATION = """
    _attn_implementation _attn_implementation_autoset _commit_hash _name_or_path architectures auto_map chunk_size_feed_forward
    finetuning_task id2label ignore_index is_causal is_decoder is_llama_config label2id model_type output_attentions output_hidden_states
    output_router_logits output_scores prefix problem_type remove_invalid_values return_dict return_dict_in_generate save_model_flag
    task_specific_params tf_legacy_loss tokenizer_class torchscript transformers.js_config transformers_version unsloth_fixed
    unsloth_version use_bfloat16 use_cache validate_runner_input verbose init_device dtype torch_dtype
"""
_GENERATION = """
    bad_words_ids begin_suppress_tokens cache_implementation diversity_penalty do_sample early_stopping encoder_no_repeat_ngram_size
    exponential_decay_length_penalty length_penalty max_length min_length no_repeat_ngram_size num_beam_groups num_beams
    num_logits_to_keep num_return_sequences repetition_penalty suppress_tokens temperature top_k top_p typical_p
"""
_POSITIONS = """
    alibi indexer_rope_interleave initial_context_length interpolate_factor no_rope_layer_interval nope_layer_interval
    original_max_position_embeddings partial_rotary_factor partial_rotary_factors position_embedding_type rope_interleave
    rope_interleaved rope_local_base_freq rope_parameters rope_scaling rotary rotary_dim rotary_emb_base rotary_pct use_mrope
    use_rope_layers yarn_only_types
"""
_INITIALISATION_AND_TRAINING = """
    attention_probs_dropout_prob aux_loss_alpha ep_size gradient_checkpointing init_std initializer_factor initializer_range
    input_jitter_noise moe_loss_weight n_special predict_special_tokens pretraining_tp rescale_prenorm_residual router_jitter_noise
    seq_aux slow_but_exact summary_activation summary_proj_to_labels summary_type summary_use_proj
"""
_NORMS_SCALES_AND_ROUTING = """
    activation_situ_beta activation_situ_linear_beta apply_residual_connection_post_layernorm attention_multiplier
    attention_softmax_in_fp32 attention_value_scale attn_logit_softcapping attn_scale attn_temperature_tuning clip_qkv
    embedding_multiplier final_logit_softcapping floor_scale full_attn_alpha_factor full_attn_beta_factor hc_sinkhorn_iters
    layernorm_full_attention_alpha layernorm_full_attention_beta layernorm_linear_attention_alpha layernorm_linear_attention_beta
    layernorm_mlp_alpha layernorm_mlp_beta linear_attn_alpha_factor linear_attn_beta_factor linear_lower_bound logit_scale
    logits_scaling masked_softmax_fusion mlp_alpha_factor mlp_beta_factor moe_norm_min moe_renormalize moe_router_activation
    moe_router_activation_func moe_router_scaling_factor moe_router_use_sigmoid n_group norm_expert_weight norm_topk_prob norm_type
    num_expert_group output_multiplier qk_scale_factor query_pre_attn_scalar residual_in_fp32 residual_multiplier route_norm
    routed_scaling_factor router_scaling_factor scale_attention_softmax_in_fp32 scale_attn_weights scoring_func swiglu_alpha
    swiglu_limit swiglu_limits swiglu_limits_shared topk_group use_gemma_norm use_grouped_topk
"""
_RUN_TIME = """
    block_size chunk_size enable_attention_fp32_softmax enable_lm_head_fp32 enable_moe_fp32_combine index_share_for_mtp_iteration
    mamba_chunk_size mamba_ssm_cache_dtype mamba_ssm_dtype max_batch_size moe_router_dtype moe_shared_expert_overlap need_fp32_gate
    time_step_floor time_step_limit time_step_max time_step_min time_step_rank use_associative_scan use_bidirectional_attention
    use_grouped_mm use_mamba_kernels use_mambapy
"""
_ACTIVATIONS = "activation activation_function hidden_act hidden_activation mamba_hidden_act mlp_hidden_act"
_AROUND_OTHER_MODALITIES = """
    image_placeholder image_seq_length is_composition language_model_only mm_tokens_per_image num_image_tokens use_unified_vision_chunk
    video_placeholder video_seq_length vision_soft_tokens_per_image
"""

HARMLESS = frozenset(
    " ".join(
        (
            _OF_EVERY_CONFIGURATION,
            _GENERATION,
            _POSITIONS,
            _INITIALISATION_AND_TRAINING,
            _NORMS_SCALES_AND_ROUTING,
            _RUN_TIME,
            _ACTIVATIONS,
            _AROUND_OTHER_MODALITIES,
        )
    ).split()
)
"""Every field that says nothing about size, for all model types."""

INERT: Mapping[str, object] = {
    "add_cross_attention": False,
    "is_encoder_decoder": False,
    "pruned_heads": {},
    "tie_encoder_decoder": False,
}
"""Fields that say nothing as long as they have this value, the one that decoders have."""


def is_harmless(name: str) -> bool:
    """The field says nothing about size for any model type."""
    return name in HARMLESS or name.endswith(_SUFFIXES)
