"""Chats and streams against a running lamina server with the `openai` package, a client that this project did not write.

Usage: openai_client.py [BASE_URL]      (pip install openai; a server as `lamina serve models/tiny-stories` starts it)
"""
import sys

import openai

client = openai.OpenAI(base_url=sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8000/v1", api_key="none")
model = client.models.list().data[0].id
messages = [{"role": "user", "content": "Once upon a time"}]

chat = client.chat.completions.create(model=model, messages=messages, temperature=0, max_tokens=40, logprobs=True, top_logprobs=3)
text = chat.choices[0].message.content
assert chat.choices[0].finish_reason == "length" and chat.usage.completion_tokens == 40, chat
assert len(chat.choices[0].logprobs.content) == 40 and len(chat.choices[0].logprobs.content[0].top_logprobs) == 3

stream = client.chat.completions.create(
    model=model, messages=messages, temperature=0, max_tokens=40, stream=True, stream_options={"include_usage": True})
pieces, usage = [], None
for chunk in stream:
    usage = chunk.usage or usage
    pieces += [choice.delta.content or "" for choice in chunk.choices]
assert "".join(pieces) == text, ("".join(pieces), text)
assert usage.completion_tokens == 40, usage

# As lm-evaluation-harness asks how likely a text is: the log-probability of the answer above, token by token, is that of the prompt.
tokens = client.completions.create(model=model, prompt="Once upon a time", temperature=0, max_tokens=8, logprobs=1, echo=True).choices[0]
told = client.completions.create(model=model, prompt=tokens.text, temperature=0, max_tokens=0, logprobs=1, echo=True).choices[0]
assert told.text == tokens.text and told.logprobs.tokens == tokens.logprobs.tokens, (told, tokens)
assert told.logprobs.token_logprobs[0] is None and told.logprobs.top_logprobs[0] is None
assert all(abs(a - b) < 1e-2 for a, b in zip(told.logprobs.token_logprobs[1:], tokens.logprobs.token_logprobs[1:])), (told, tokens)
assert all(token in top for token, top in zip(told.logprobs.tokens[1:], told.logprobs.top_logprobs[1:]))
listed = client.completions.create(model=model, prompt=tokens.text, max_tokens=1, extra_body={"prompt_logprobs": 0}).choices[0].prompt_logprobs
assert [next(iter(entry.values()))["logprob"] for entry in listed[1:]] == told.logprobs.token_logprobs[1:], listed

many = client.completions.create(model=model, prompt="One rainy day,", n=3, seed=7, temperature=0.9, max_tokens=20, stop=["."])
again = client.completions.create(model=model, prompt="One rainy day,", n=3, seed=7, temperature=0.9, max_tokens=20, stop=["."])
assert [c.text for c in many.choices] == [c.text for c in again.choices], "a seed decides the text"
assert all("." not in c.text for c in many.choices)

# The package asks for base64 unless it is told otherwise, and reads it with numpy or without.
texts = ["Once upon a time", "One rainy day, a small dog", "Once upon a time"]
coded = client.embeddings.create(model=model, input=texts)
plain = client.embeddings.create(model=model, input=texts, encoding_format="float")
assert [one.index for one in coded.data] == [0, 1, 2] and coded.usage.prompt_tokens == plain.usage.total_tokens > 10, coded.usage
for one, other in zip(coded.data, plain.data):
    assert len(one.embedding) == len(other.embedding) and max(abs(a - b) for a, b in zip(one.embedding, other.embedding)) < 1e-7
    assert abs(sum(value * value for value in one.embedding) - 1) < 1e-5
assert coded.data[0].embedding == coded.data[2].embedding != coded.data[1].embedding
short = client.embeddings.create(model=model, input=texts[0], dimensions=8, encoding_format="float").data[0].embedding
scale = sum(value * value for value in plain.data[0].embedding[:8]) ** 0.5
assert len(short) == 8 and max(abs(a - b / scale) for a, b in zip(short, plain.data[0].embedding)) < 1e-5, short
try:
    client.embeddings.create(model=model, input=texts[0], dimensions=10**6)
    raise SystemExit("dimensions above the model's were accepted")
except openai.BadRequestError as error:
    print("too many dimensions:", error.body["message"])

try:
    client.completions.create(model=model, prompt="x", max_tokens=100000)
    raise SystemExit("a request that is too long was accepted")
except openai.BadRequestError as error:
    print("too long:", error.body["message"])
try:
    client.completions.create(model="no-such-model", prompt="x")
    raise SystemExit("an unknown model was accepted")
except openai.NotFoundError as error:
    print("unknown model:", error.body["message"])
print(f"openai {openai.__version__}: chat, stream, n, seed, stop and errors as expected\n{messages[0]['content']}{text}")
