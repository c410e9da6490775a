"""Sends a running lamina server the requests that Open WebUI sends to its backends, and reads the answers as it does. They were taken from the source of
open-webui 0.12.4: routers/openai.py, routers/ollama.py, routers/tasks.py, utils/payload.py, utils/response.py and utils/middleware.py.

Usage: open_webui_calls.py [URL]      (nothing to install; a server with a chat template that knows tools)
"""
import datetime
import json
import sys
import urllib.error
import urllib.request

url = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8000"
HEADERS = {"Content-Type": "application/json", "Authorization": "Bearer none"}
CHAT = [{"role": "system", "content": "You tell stories."}, {"role": "user", "content": "Once upon a time"}]
TOOL = {"name": "weather", "description": "Tells the weather", "parameters": {"type": "object", "properties": {"city": {"enum": ["Rome", "Oslo"]}},
                                                                             "required": ["city"], "additionalProperties": False}}
TOOLS = [{"type": "function", "function": TOOL}]


def send(path, body=None):
    request = urllib.request.Request(url + path, headers=HEADERS, data=None if body is None else json.dumps(body).encode())
    return urllib.request.urlopen(request, timeout=100)


def ask(path, body=None):
    with send(path, body) as answer:
        return json.load(answer)


def status_of(path, body=None):
    try:
        with send(path, body) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def openai_stream(body):
    """What its middleware makes of a stream: the text, the calls, the reason of the end and the usage."""
    text, calls, reason, usage, ended = "", {}, None, None, False
    with send("/v1/chat/completions", {**body, "stream": True, "stream_options": {"include_usage": True}}) as answer:
        assert "text/event-stream" in answer.headers["Content-Type"], answer.headers
        for line in answer:
            line = line.decode().strip()
            if not line.startswith("data:"):
                continue
            line = line[len("data:"):].strip()
            if line == "[DONE]":
                ended = True
                continue
            data = json.loads(line)
            assert "error" not in data, data
            usage = data.get("usage") or usage
            for choice in data.get("choices", []):
                reason = choice.get("finish_reason") or reason
                delta = choice.get("delta") or {}
                text += delta.get("content") or ""
                for call in delta.get("tool_calls") or []:
                    known = calls.setdefault(call["index"], {"id": call.get("id"), "type": "function", "function": {"name": "", "arguments": ""}})
                    known["function"]["name"] += call.get("function", {}).get("name") or ""
                    known["function"]["arguments"] += call.get("function", {}).get("arguments") or ""
    assert ended, "no [DONE]"
    return text, list(calls.values()), reason, usage


def check_openai():
    models = ask("/v1/models")["data"]
    model = models[0]["id"]
    assert model and models[0]["object"] == "model", models
    # A chat as the page sends it, and the same in one piece.
    body = {"model": model, "messages": CHAT, "temperature": 0.0, "max_tokens": 30}
    text, _, reason, usage = openai_stream(body)
    whole = ask("/v1/chat/completions", {**body, "stream": False})
    assert whole["choices"][0]["message"]["content"] == text and text and reason == "length", (whole, text, reason)
    counts = [(one["prompt_tokens"], one["completion_tokens"], one["total_tokens"]) for one in (usage, whole["usage"])]
    assert counts[0] == counts[1] and counts[0][1] == 30, (usage, whole["usage"])
    # Every parameter that apply_model_params_to_body_openai knows.
    chosen = {"temperature": 0.7, "top_p": 0.9, "min_p": 0.05, "max_tokens": 20, "frequency_penalty": 0.1, "presence_penalty": 0.1, "seed": 7,
              "stop": ["\n\n"], "logit_bias": {"17": -100}, "response_format": {"type": "text"}}
    assert openai_stream({**body, **chosen})[0] == openai_stream({**body, **chosen})[0], "a seed decides the text"
    # "Continue": the conversation ends with what the model has said so far.
    assert openai_stream({**body, "messages": CHAT + [{"role": "assistant", "content": text}]})[0]
    # Content in parts, as the page sends it with attachments.
    parts = [CHAT[0], {"role": "user", "content": [{"type": "text", "text": CHAT[1]["content"]}]}]
    assert openai_stream({**body, "messages": parts})[0] == text
    # The title, the follow-up questions, the tags, and an emoji in four tokens: tasks of the same model.
    for limit in ({"max_tokens": 50}, {"max_tokens": 4}, {"max_completion_tokens": 50}):
        task = ask("/v1/chat/completions", {"model": model, "messages": [{"role": "user", "content": "A title, as JSON:"}], "stream": False, **limit})
        assert task["choices"][0]["message"]["role"] == "assistant", task
    # Native function calling, and the answer after the result.
    named = {"type": "function", "function": {"name": "weather"}}
    _, calls, reason, _ = openai_stream({**body, "max_tokens": 100, "tools": TOOLS, "tool_choice": named})
    assert json.loads(calls[0]["function"]["arguments"])["city"] in ("Rome", "Oslo") and calls[0]["id"] and reason in ("tool_calls", "stop"), (calls, reason)
    after = CHAT + [{"role": "assistant", "content": "", "tool_calls": calls}, {"role": "tool", "tool_call_id": calls[0]["id"], "content": "Sunny"}]
    assert openai_stream({**body, "messages": after, "tools": TOOLS})[0]
    # A connection of the type "responses".
    message = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": CHAT[1]["content"]}]}
    answer = ask("/v1/responses", {"model": model, "input": [message], "instructions": CHAT[0]["content"], "stream": False, "temperature": 0.0,
                                   "max_output_tokens": 30})
    assert answer["output"][0]["content"][0]["text"] == text, answer
    # An error is shown to the user: its message is looked for here.
    code, error = status_of("/v1/chat/completions", {**body, "max_tokens": 10**6})
    assert code == 400 and "max_tokens" in error["error"]["message"], error
    return model, text


def ollama_stream(body):
    """convert_streaming_response_ollama_to_openai: lines of JSON, of which the last is done and has the figures."""
    text, calls, last = "", [], {}
    with send("/api/chat", {**body, "stream": True}) as answer:
        for line in answer:
            last = json.loads(line)
            message = last.get("message") or {}
            text += message.get("content") or ""
            calls += message.get("tool_calls") or []
    assert last["done"], last
    return text, calls, last


def check_ollama(served, expected):
    assert ask("/api/version")["version"].split(".")[0].isdigit()
    tags = ask("/api/tags")["models"]
    model = tags[0]["model"]
    assert served in model and tags[0]["name"] == model, tags
    for loaded in ask("/api/ps")["models"]:
        assert loaded["model"] == model, loaded
        if "expires_at" in loaded:
            datetime.datetime.fromisoformat(loaded["expires_at"])
    shown = ask("/api/show", {"model": model})
    assert shown["details"] and shown["capabilities"], shown
    # A chat as the page sends it, with convert_payload_openai_to_ollama.
    body = {"model": model, "messages": CHAT, "options": {"temperature": 0.0, "num_predict": 30}}
    text, _, last = ollama_stream(body)
    assert text == expected and last["done_reason"] == "length", (text, expected, last)
    assert all(last[key] > 0 for key in ("prompt_eval_count", "eval_count", "total_duration", "eval_duration")), last
    assert ask("/api/chat", {**body, "stream": False})["message"]["content"] == text
    # Every option that apply_model_params_to_body_ollama knows, with Ollama's defaults where they decide about the machine.
    options = {"temperature": 0.7, "top_p": 0.9, "seed": 7, "mirostat": 0, "mirostat_eta": 0.1, "mirostat_tau": 5.0, "num_ctx": 1024, "num_batch": 512,
               "num_keep": 24, "num_predict": 20, "repeat_last_n": -1, "top_k": 40, "min_p": 0.05, "repeat_penalty": 1.1, "presence_penalty": 0.1,
               "frequency_penalty": 0.1, "stop": ["\n\n"], "num_gpu": 1, "use_mmap": True, "use_mlock": True, "num_thread": 2}
    chosen = {**body, "options": options, "keep_alive": "5m", "think": False}
    assert ollama_stream(chosen)[0] == ollama_stream(chosen)[0], "a seed decides the text"
    held = ask("/api/chat", {**body, "stream": False, "options": {"num_predict": 60}, "format": TOOL["parameters"]})
    assert json.loads(held["message"]["content"])["city"] in ("Rome", "Oslo"), held
    # Calls of the history have arguments as objects; one with its result behind it.
    call = {"index": 0, "id": "call_1", "function": {"name": "weather", "arguments": {"city": "Rome"}}}
    after = CHAT + [{"role": "assistant", "content": "", "thinking": "The weather.", "tool_calls": [call]},
                    {"role": "tool", "content": "Sunny", "tool_call_id": "call_1"}]
    assert ollama_stream({**body, "messages": after, "tools": TOOLS})[0]
    # Through its proxy to Ollama's OpenAI-compatible side.
    assert ask("/v1/completions", {"model": model, "prompt": "Once upon a time", "max_tokens": 8})["choices"][0]["text"]
    # "Unload" in its menu: the model stays, and the request is answered.
    unloaded = ask("/api/generate", {"model": model, "keep_alive": 0, "prompt": ""})
    assert unloaded["done"], unloaded


served, told = check_openai()
print("Open WebUI's requests to an OpenAI-compatible backend: ok")
check_ollama(served, told)
print("Open WebUI's requests to Ollama: ok")
