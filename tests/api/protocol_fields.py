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


anthropic_fields = anthropic.types.message_create_params.MessageCreateParamsStreaming
responses_fields = openai.types.responses.response_create_params.ResponseCreateParamsStreaming
print(json.dumps({
    "messages": fields(anthropic_fields),
    "count_tokens": fields(anthropic.types.message_count_tokens_params.MessageCountTokensParams),
    "responses": fields(responses_fields),
    "chat": fields(ollama._types.ChatRequest),
    "generate": fields(ollama._types.GenerateRequest),
    "options": fields(ollama._types.Options),
}, indent=1))
