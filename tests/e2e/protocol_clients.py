"""Talks to a running lamina server with the `anthropic`, `openai` (Responses API) and `ollama` packages, clients that this project did not write:
plain, streamed, with tools, and with answers held to a schema.

Usage: protocol_clients.py [URL]      (pip install anthropic openai ollama; a server with a chat template that knows tools)
"""
import json
import sys
from typing import Literal

import anthropic
import ollama
import openai
import pydantic

url = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8000"
openai_client = openai.OpenAI(base_url=url + "/v1", api_key="none")
model = openai_client.models.list().data[0].id
prompt = "Once upon a time"
messages = [{"role": "user", "content": prompt}]
schema = {"type": "object", "properties": {"days": {"type": "integer", "minimum": 0, "maximum": 9}, "who": {"enum": ["Rosa", "Mira"]}},
          "required": ["days", "who"], "additionalProperties": False}
# What the API that is tested elsewhere answers.
expected = openai_client.chat.completions.create(model=model, messages=messages, temperature=0, max_tokens=40).choices[0].message.content


class Trip(pydantic.BaseModel):
    who: Literal["Rosa", "Mira"]
    by_train: bool


def check_arguments(arguments):
    assert set(arguments) == {"days", "who"} and 0 <= arguments["days"] <= 9 and arguments["who"] in ("Rosa", "Mira"), arguments


def refused(error_type, call, named):
    try:
        call()
    except error_type as error:
        assert named in str(error), error
        return
    raise AssertionError(f"{named} was accepted")


def check_anthropic():
    client = anthropic.Anthropic(base_url=url, api_key="none", max_retries=0)
    # The package names 'temperature' no more, and sends it if it is told to.
    ask = dict(model=model, messages=messages, max_tokens=40, extra_body={"temperature": 0})
    message = client.messages.create(**ask)
    assert message.content[0].text == expected and message.stop_reason == "max_tokens", message
    assert message.usage.output_tokens == 40
    cached = message.usage.cache_read_input_tokens
    assert client.messages.count_tokens(model=model, messages=messages).input_tokens == message.usage.input_tokens + cached

    with client.messages.stream(**ask) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == final.content[0].text == expected, (text, final)
    assert final.stop_reason == "max_tokens" and final.usage.output_tokens == 40, final
    assert [event.type for event in client.messages.create(**ask, stream=True)][-1] == "message_stop"

    tools = [{"name": "find", "description": "Finds somebody", "input_schema": schema}]
    ask |= dict(tools=tools, tool_choice={"type": "any", "disable_parallel_tool_use": True}, max_tokens=100)
    called = client.messages.create(**ask)
    assert called.stop_reason == "tool_use" and called.content[0].name == "find", called
    check_arguments(called.content[0].input)
    with client.messages.stream(**ask) as stream:
        streamed = stream.get_final_message()
    assert streamed.content[0].input == called.content[0].input and streamed.stop_reason == "tool_use", streamed
    result = {"type": "tool_result", "tool_use_id": called.content[0].id, "content": "in the garden"}
    history = messages + [{"role": "assistant", "content": called.content}, {"role": "user", "content": [result]}]
    assert client.messages.create(model=model, messages=history, tools=tools, max_tokens=8, system="Be kind.").content is not None

    parsed = client.messages.parse(model=model, messages=messages, max_tokens=60, output_format=Trip)
    assert isinstance(parsed.parsed_output, Trip), parsed

    refused(anthropic.BadRequestError, lambda: client.messages.create(**{**ask, "max_tokens": 10**4}), "max_tokens")
    image = [{"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": "http://x"}}]}]
    refused(anthropic.BadRequestError, lambda: client.messages.create(**{**ask, "messages": image}), "image")
    refused(anthropic.NotFoundError, lambda: client.messages.create(**{**ask, "model": "no-such-model"}), "no-such-model")


def check_responses():
    client = openai_client.with_options(max_retries=0)
    ask = dict(model=model, input=prompt, max_output_tokens=40, temperature=0)
    response = client.responses.create(**ask)
    assert response.output_text == expected and response.status == "incomplete", response
    assert response.incomplete_details.reason == "max_output_tokens" and response.usage.output_tokens == 40, response
    assert client.responses.create(**{**ask, "input": messages}).output_text == expected

    text, types = "", []
    for event in client.responses.create(**ask, stream=True):
        types.append(event.type)
        text += event.delta if event.type == "response.output_text.delta" else ""
    assert text == expected and types[0] == "response.created" and types[-1] == "response.incomplete", types
    with client.responses.stream(model=model, input=prompt, text_format=Trip, max_output_tokens=60) as stream:
        for _ in stream:
            pass
        assert isinstance(stream.get_final_response().output_parsed, Trip)
    assert isinstance(client.responses.parse(model=model, input=prompt, text_format=Trip, max_output_tokens=60).output_parsed, Trip)

    tools = [{"type": "function", "name": "find", "description": "Finds somebody", "parameters": schema, "strict": True}]
    ask |= dict(tools=tools, tool_choice="required", parallel_tool_calls=False, max_output_tokens=100)
    call = client.responses.create(**ask).output[0]
    assert call.type == "function_call" and call.name == "find", call
    check_arguments(json.loads(call.arguments))
    events = list(client.responses.create(**ask, stream=True))
    arguments = "".join(event.delta for event in events if event.type == "response.function_call_arguments.delta")
    assert arguments == call.arguments == events[-1].response.output[0].arguments, (arguments, call)
    history = messages + [call, {"type": "function_call_output", "call_id": call.call_id, "output": "in the garden"}]
    assert client.responses.create(model=model, input=history, tools=tools, max_output_tokens=8, instructions="Be kind.").output

    refused(openai.BadRequestError, lambda: client.responses.create(**ask, previous_response_id="resp_1"), "previous_response_id")
    refused(openai.BadRequestError, lambda: client.responses.create(**ask, store=True), "store")
    refused(openai.NotFoundError, lambda: client.responses.retrieve("resp_1"), "404")


def check_ollama():
    client = ollama.Client(host=url)
    ask = dict(model=model, messages=messages, options={"temperature": 0, "num_predict": 40})
    chat = client.chat(**ask)
    assert chat.message.content == expected and chat.done_reason == "length" and chat.eval_count == 40, chat
    parts = list(client.chat(**ask, stream=True))
    assert "".join(part.message.content for part in parts) == expected and parts[-1].done, parts
    generated = client.generate(model=model, prompt=prompt, options=ask["options"])
    assert generated.response == expected, generated
    parts = list(client.generate(model=model, prompt=prompt, options=ask["options"], stream=True))
    assert "".join(part.response for part in parts) == expected, parts

    def find(who: str, days: int) -> str:
        """Finds somebody.

        Args:
            who: the name
            days: for how long
        """
        return f"{who} {days}"

    assert client.chat(**ask, tools=[find]).message is not None
    history = messages + [{"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "find", "arguments": {"who": "Rosa", "days": 1}}}]},
                          {"role": "tool", "tool_name": "find", "content": "in the garden"}]
    assert client.chat(model=model, messages=history, tools=[find], options={"num_predict": 8}).done
    Trip.model_validate_json(client.chat(model=model, messages=messages, format=Trip.model_json_schema(), options={"num_predict": 60}).message.content)
    assert client.list().models[0].model == model
    assert "completion" in client.show(model).capabilities
    assert client.ps().models[0].context_length > 0
    of_openai = openai.OpenAI(base_url=url + "/v1", api_key="none").embeddings.create(model=model, input=[prompt, "x"], encoding_format="float")
    embedded = client.embed(model=model, input=[prompt, "x"])
    assert [list(vector) for vector in embedded.embeddings] == [one.embedding for one in of_openai.data], embedded
    assert embedded.prompt_eval_count == of_openai.usage.prompt_tokens, embedded
    older = client.embeddings(model=model, prompt=prompt).embedding
    length = sum(value * value for value in older) ** 0.5
    assert max(abs(a / length - b) for a, b in zip(older, embedded.embeddings[0])) < 1e-5, older
    refused(ollama.ResponseError, lambda: client.chat(**{**ask, "options": {"mirostat": 2}}), "mirostat")
    refused(ollama.ResponseError, lambda: client.chat(**{**ask, "model": "no-such-model"}), "no-such-model")


check_anthropic()
check_responses()
check_ollama()
print(f"anthropic {anthropic.__version__}, openai {openai.__version__} (responses), ollama: chats, streams, tools, schemas and errors as expected")
