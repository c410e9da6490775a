"""Writes request_fields.json: the names of the fields of requests to /v1/completions, /v1/chat/completions and /v1/embeddings, as the types of
the openai package have them, and those that vLLM adds, read from its sources without importing it.

Usage: request_fields.py VLLM_DIR     (pip install openai; VLLM_DIR: an unpacked vllm wheel)
"""
import ast, json, os, sys, typing

import openai
from openai.types import completion_create_params, embedding_create_params
from openai.types.chat import completion_create_params as chat_create_params


def of_openai(params):
    if params is embedding_create_params:
        return sorted(typing.get_type_hints(params.EmbeddingCreateParams))
    streaming, whole = params.CompletionCreateParamsStreaming, params.CompletionCreateParamsNonStreaming
    return sorted(set(typing.get_type_hints(streaming)) | set(typing.get_type_hints(whole)))


def of_vllm(path, class_name):
    with open(os.path.join(sys.argv[1], "vllm/entrypoints", path)) as file:
        tree = ast.parse(file.read())
    body = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == class_name).body
    return [node.target.id for node in body if isinstance(node, ast.AnnAssign) and not node.target.id.startswith("_")]


def fields(params, path, *class_names):
    known = of_openai(params)
    added = {name for class_name in class_names for name in of_vllm(path, class_name)}
    return {"openai": known, "vllm": sorted(added - set(known))}


version = next(name for name in os.listdir(sys.argv[1]) if name.startswith("vllm-") and name.endswith(".dist-info"))
out = {
    "openai": openai.__version__,
    "vllm": version.removeprefix("vllm-").removesuffix(".dist-info"),
    "completions": fields(completion_create_params, "openai/completion/protocol.py", "CompletionRequest"),
    "chat": fields(chat_create_params, "openai/chat_completion/protocol.py", "ChatCompletionRequest"),
    # What EmbeddingCompletionRequest is made of.
    "embeddings": fields(embedding_create_params, "pooling/base/protocol.py", "PoolingBasicRequestMixin", "CompletionRequestMixin",
                         "EncodingRequestMixin", "EmbedRequestMixin"),
}
with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "request_fields.json"), "w") as file:
    json.dump(out, file, indent=1)
    file.write("\n")
