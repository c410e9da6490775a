"""Talks to a running lamina server with the packages `langchain-openai`, `litellm` and `llm`, as their users do: plain, streamed, with tools, and with
answers held to a schema.

Usage: framework_clients.py [URL]      (pip install langchain-openai litellm llm openai; a server with a chat template that knows tools)
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
from typing import Literal

import openai
import pydantic

url = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8000"
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # it would fetch prices
reference = openai.OpenAI(base_url=url + "/v1", api_key="none")
model = reference.models.list().data[0].id
prompt = "Once upon a time"
messages = [{"role": "user", "content": prompt}]
# What the API that is tested elsewhere answers.
expected = reference.chat.completions.create(model=model, messages=messages, temperature=0, max_tokens=40).choices[0].message.content


def embeddings(texts):
    return [one.embedding for one in reference.embeddings.create(model=model, input=texts, encoding_format="float").data]


class Trip(pydantic.BaseModel):
    """A journey."""

    who: Literal["Rosa", "Mira"]
    days: Literal[1, 2, 3]


def check_langchain():
    from langchain_openai import ChatOpenAI, OpenAI, OpenAIEmbeddings

    chat = ChatOpenAI(base_url=url + "/v1", api_key="none", model=model, temperature=0, max_tokens=40, max_retries=0)
    answer = chat.invoke(prompt)
    assert answer.content == expected, answer
    assert answer.usage_metadata["output_tokens"] == 40, answer.usage_metadata
    assert "".join(chunk.content for chunk in chat.stream(prompt)) == expected
    assert [reply.content for reply in chat.batch([prompt, prompt])] == [expected, expected]
    called = chat.bind(max_tokens=100).bind_tools([Trip], tool_choice="Trip").invoke(prompt)
    assert called.tool_calls[0]["name"] == "Trip", called
    Trip.model_validate(called.tool_calls[0]["args"])
    for method in ("json_schema", "function_calling"):
        parsed = chat.with_structured_output(Trip, method=method).invoke(prompt)
        assert isinstance(parsed, Trip), parsed
    text = OpenAI(base_url=url + "/v1", api_key="none", model=model, temperature=0, max_tokens=8, max_retries=0).invoke(prompt)
    assert text == reference.completions.create(model=model, prompt=prompt, temperature=0, max_tokens=8).choices[0].text, text
    # Otherwise it would send token ids of OpenAI's tokenizer.
    vectors = OpenAIEmbeddings(base_url=url + "/v1", api_key="none", model=model, check_embedding_ctx_length=False, max_retries=0)
    told = [*vectors.embed_documents([prompt, "x"]), vectors.embed_query(prompt)]  # as base64
    for one, other in zip(told, embeddings([prompt, "x", prompt]), strict=True):
        assert max(abs(a - b) for a, b in zip(one, other, strict=True)) < 1e-6, (one, other)


def check_litellm():
    import litellm

    litellm.num_retries = 0
    ask = dict(model="openai/" + model, api_base=url + "/v1", api_key="none", messages=messages, temperature=0, max_tokens=40)
    answer = litellm.completion(**ask)
    assert answer.choices[0].message.content == expected and answer.usage.completion_tokens == 40, answer
    pieces = [chunk.choices[0].delta.content or "" for chunk in litellm.completion(**ask, stream=True)]
    assert "".join(pieces) == expected, pieces
    tools = [{"type": "function", "function": {"name": "plan", "description": "Plans a journey", "parameters": Trip.model_json_schema()}}]
    named = {"type": "function", "function": {"name": "plan"}}
    called = litellm.completion(**{**ask, "max_tokens": 100}, tools=tools, tool_choice=named)
    Trip.model_validate_json(called.choices[0].message.tool_calls[0].function.arguments)
    held = litellm.completion(**ask, response_format=Trip)
    Trip.model_validate_json(held.choices[0].message.content)
    try:
        litellm.completion(**{**ask, "max_tokens": 10**6})
        raise AssertionError("max_tokens was accepted")
    except litellm.BadRequestError as error:
        assert "max_tokens" in str(error), error
    vectors = litellm.embedding(model="openai/" + model, api_base=url + "/v1", api_key="none", input=[prompt, "x"], encoding_format="float")
    assert [one["embedding"] for one in vectors.data] == embeddings([prompt, "x"]), vectors
    documents = ["a red ball", prompt, "x"]
    ranked = litellm.rerank(model="hosted_vllm/" + model, api_base=url, api_key="none", query=prompt, documents=documents, top_n=2)
    assert [one["index"] for one in ranked.results][0] == 1 and len(ranked.results) == 2, ranked
    assert abs(ranked.results[0]["relevance_score"] - 1) < 1e-5, ranked
    # Its own way to Ollama's and to Anthropic's protocol.
    of_ollama = litellm.completion(**{**ask, "model": "ollama_chat/" + model, "api_base": url})
    assert of_ollama.choices[0].message.content == expected, of_ollama
    of_anthropic = litellm.completion(**{**ask, "model": "anthropic/" + model, "api_base": url})
    assert of_anthropic.choices[0].message.content == expected, of_anthropic


def check_llm():
    with tempfile.TemporaryDirectory() as folder:
        described = f"- model_id: here\n  model_name: {model}\n  api_base: {url}/v1\n  supports_schema: true\n"
        pathlib.Path(folder, "extra-openai-models.yaml").write_text(described)
        environment = {**os.environ, "LLM_USER_PATH": folder, "OPENAI_API_KEY": "none"}

        def run(*arguments):
            command = [sys.executable, "-m", "llm", "--model", "here", "--option", "temperature", "0", *arguments, prompt]
            return subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=100).stdout

        for how in ([], ["--no-stream"]):
            answer = run("--option", "max_tokens", "40", *how)
            assert answer.strip() == expected.strip(), (answer, expected)
        Trip.model_validate(json.loads(run("--option", "max_tokens", "60", "--schema", json.dumps(Trip.model_json_schema()))))


def version(package):
    from importlib.metadata import version as of

    return of(package)


for package, check in (("langchain-openai", check_langchain), ("litellm", check_litellm), ("llm", check_llm)):
    check()
    print(f"{package} {version(package)}: ok")
