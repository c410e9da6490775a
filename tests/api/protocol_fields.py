"""Writes protocol_fields.json: the fields of requests that the packages anthropic, openai (its Responses API) and ollama have.

Usage: protocol_fields.py > protocol_fields.json      (pip install anthropic openai ollama)
"""
import json

import anthropic.types.message_count_tokens_params
import anthropic.types.message_create_params
import ollama._types
import openai.types.responses.response_create_params


def fields(typed):
    return sorted(typed.__annotations__ if not hasattr(typed, "model_fields") else typed.model_fields)


# There is no package of llama.cpp's. These stand in the documentation of its server.
LLAMA = """prompt temperature dynatemp_range dynatemp_exponent top_k top_p min_p n_predict n_indent n_keep n_cmpl n_discard stream stop
typical_p top_n_sigma repeat_penalty repeat_last_n presence_penalty frequency_penalty dry_multiplier dry_base dry_allowed_length
dry_penalty_last_n dry_sequence_breakers xtc_probability xtc_threshold mirostat mirostat_tau mirostat_eta grammar json_schema seed ignore_eos
logit_bias n_probs min_keep t_max_predict_ms t_max_prompt_ms id_slot cache_prompt n_cache_reuse return_tokens samplers timings_per_token
return_progress post_sampling_probs response_fields lora model image_data""".split()

anthropic_fields = anthropic.types.message_create_params.MessageCreateParamsStreaming
responses_fields = openai.types.responses.response_create_params.ResponseCreateParamsStreaming
print(json.dumps({
    "messages": fields(anthropic_fields),
    "count_tokens": fields(anthropic.types.message_count_tokens_params.MessageCountTokensParams),
    "responses": fields(responses_fields),
    "chat": fields(ollama._types.ChatRequest),
    "generate": fields(ollama._types.GenerateRequest),
    "options": fields(ollama._types.Options),
    "completion": sorted(LLAMA),
}, indent=1))
