"""Fields of a config.json that change neither the number of parameters nor what a sequence keeps in memory.

The list was decided from published configurations: fields that the common configuration class writes for every model
(https://github.com/huggingface/transformers/blob/main/src/transformers/configuration_utils.py), token ids, positions, initialisation,
training losses, and the run-time choices of the public implementations. A field that is in no list is refused.
"""

_SUFFIXES = (
    "_token_id",
    "_token_ids",
    "_token_index",
    "_dropout",
    "_dropout_prob",
    "_pdrop",
    "_eps",
    "_epsilon",
    "_theta",
    "_loss_coef",
    "_loss_weight",
)

_OF_EVERY_CONFIGURATION = """
    _attn_implementation _attn_implementation_autoset _commit_hash _name_or_path architectures auto_map chunk_size_feed_forward
    custom_pipelines finetuning_task id2label label2id is_decoder is_encoder_decoder model_type problem_type pruned_heads return_dict
    return_dict_in_generate output_attentions output_hidden_states output_scores output_router_logits task_specific_params
    tie_encoder_decoder tokenizer_class tokenizer_file torchscript transformers_version unsloth_fixed unsloth_version use_bfloat16 use_cache
    tf_legacy_loss prefix cross_attention_hidden_size add_cross_attention remove_invalid_values name language keys_to_ignore_at_inference
    transformers.js_config ignore_index dtype torch_dtype init_device verbose save_model_flag model_id model_name
"""
_GENERATION = """
    bad_words_ids begin_suppress_tokens suppress_tokens diversity_penalty do_sample early_stopping encoder_no_repeat_ngram_size
    exponential_decay_length_penalty length_penalty max_length min_length max_new_tokens no_repeat_ngram_size num_beam_groups num_beams
    num_return_sequences repetition_penalty temperature top_k top_p typical_p generation_config num_logits_to_keep cache_implementation
    use_cache_quantization use_cache_kernel
"""
_POSITIONS = """
    rope_scaling rope_theta rope_parameters rope_type rope_percent rope_pct rope_fraction rope_ratio rope_interleave rope_interleaved
    rope_local_base_freq rope_traditional rotary rotary_dim rotary_pct rotary_emb_base rotary_emb_fraction rotary_emb_scale_base
    rotary_emb_interleaved rotary_percentage partial_rotary_factor partial_rotary_factors position_embedding_type alibi
    original_max_position_embeddings max_sequence_length initial_context_length use_mrope indexer_rope_interleave compress_rope_theta
    no_rope_layer_interval nope_layer_interval use_rope_layers yarn_only_types layer_rope_theta mrope_section long_factor short_factor
    seq_length max_window_layers_rope use_rope rope_head_dim swa_rope_theta swa_partial_rotary_factor mscale mscale_all_dim
"""
_INITIALISATION_AND_TRAINING = """
    initializer_range initializer_factor init_method_std init_std init_method attention_dropout hidden_dropout embd_pdrop resid_pdrop
    attn_pdrop emb_pdrop dropout classifier_dropout summary_activation summary_first_dropout summary_proj_to_labels summary_type
    summary_use_proj gradient_checkpointing aux_loss_alpha seq_aux router_jitter_noise input_jitter_noise rescale_prenorm_residual
    pretraining_tp scale_attn_weights attention_softmax_in_fp32 scale_attention_softmax_in_fp32 use_flash_attn use_flash_attention
    flash_attn fused_mlp slow_but_exact offset_alibi masked_softmax_fusion n_embed_dropout bias_dropout_fusion skip_bias_add
    skip_bias_add_qkv attention_interface_fp32 embed_dropout_prob use_logits_dtype first_attn_dropout ep_size moe_router_dtype
    moe_router_fp32 need_fp32_gate enable_moe_fp32_combine enable_attention_fp32_softmax enable_lm_head_fp32 use_bidirectional_attention
"""
_SCALES_AND_NORMS = """
    rms_norm_eps layer_norm_eps layer_norm_epsilon layernorm_epsilon norm_epsilon norm_eps norm_type post_norm_eps logit_scale
    logits_scaling embedding_multiplier residual_multiplier attention_multiplier query_pre_attn_scalar final_logit_softcapping
    attn_logit_softcapping attn_scale attn_temperature_tuning floor_scale qk_scale_factor output_multiplier routed_scaling_factor
    router_scaling_factor moe_router_scaling_factor norm_topk_prob norm_expert_weight moe_renormalize route_norm route_scale
    scoring_func topk_group n_group num_expert_group topk_group use_grouped_topk moe_router_activation moe_router_activation_func
    moe_router_use_sigmoid moe_norm_min attention_value_scale swiglu_limit swiglu_limits swiglu_limits_shared swiglu_alpha
    activation_situ_beta activation_situ_linear_beta full_attn_alpha_factor full_attn_beta_factor linear_attn_alpha_factor
    linear_attn_beta_factor mlp_alpha_factor mlp_beta_factor layernorm_full_attention_alpha layernorm_full_attention_beta
    layernorm_linear_attention_alpha layernorm_linear_attention_beta layernorm_mlp_alpha layernorm_mlp_beta linear_lower_bound
    mup_width_scale gegelu_limit clip_qkv softmax_scale use_gemma_norm hc_eps hc_sinkhorn_iters residual_in_fp32
"""
_RUN_TIME = """
    use_mamba_kernels use_mambapy use_associative_scan chunk_size mamba_chunk_size mamba_ssm_dtype mamba_ssm_cache_dtype time_step_floor
    time_step_limit time_step_max time_step_min time_step_rank sparse_init_block block_size attn_impl max_batch_size
    moe_shared_expert_overlap index_share_for_mtp_iteration image_seq_length video_seq_length vision_soft_tokens_per_image
    apply_residual_connection_post_layernorm validate_runner_input is_llama_config predict_special_tokens n_special interpolate_factor
    mm_tokens_per_image boi_token_index eoi_token_index eoi_token boi_token image_token video_token audio_token image_placeholder
    video_placeholder use_unified_vision_chunk language_model_only hidden_act hidden_activation activation_function activation
    mlp_hidden_act mamba_hidden_act act_fn auto_map_extra max_window_size logits_soft_cap
"""

HARMLESS = frozenset(
    " ".join((_OF_EVERY_CONFIGURATION, _GENERATION, _POSITIONS, _INITIALISATION_AND_TRAINING, _SCALES_AND_NORMS, _RUN_TIME)).split()
)
"""Every field that says nothing about size, for all model types."""


def is_harmless(name: str) -> bool:
    """The field says nothing about size for any model type."""
    return name in HARMLESS or name.endswith(_SUFFIXES)
