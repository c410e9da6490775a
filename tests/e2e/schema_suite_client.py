"""Has a running lamina server answer in the schemas of a checkout of the official JSON-Schema-Test-Suite (draft 2020-12), at temperature 2, and
holds what is complete to the package jsonschema.

Usage: schema_suite_client.py SUITE [URL]      (pip install jsonschema; a server of models/tiny-stories)
"""
import collections
import concurrent.futures
import json
import pathlib
import sys
import urllib.error
import urllib.request

from jsonschema import Draft202012Validator

suite = pathlib.Path(sys.argv[1])
url = sys.argv[2] if len(sys.argv) > 2 else "http://127.0.0.1:8000"
SEEDS, MAX_TOKENS = 4, 200


def answer(schema, seed):
    """The text and why it ended, or None if the schema is refused."""
    sent = {"allOf": [schema]} if isinstance(schema, bool) else schema  # false is no schema there
    body = {"prompt": "Once upon a time", "max_tokens": MAX_TOKENS, "temperature": 2, "seed": seed, "guided_json": sent}
    request = urllib.request.Request(url + "/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=100) as response:
            choice = json.load(response)["choices"][0]
            return choice["text"], choice["finish_reason"]
    except urllib.error.HTTPError as error:
        assert error.code == 400, (error.code, error.read())
        assert json.load(error)["error"]["message"], schema
        return None


def main():
    groups = [(path.stem, group["schema"]) for path in sorted((suite / "tests/draft2020-12").glob("*.json")) for group in json.loads(path.read_text())]
    assert groups, f"there are no tests in {suite}/tests/draft2020-12"
    counts = collections.Counter()
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        asked = [(name, schema, [pool.submit(answer, schema, seed) for seed in range(SEEDS)]) for name, schema in groups]
    for name, schema, answers in asked:
        for future in answers:
            outcome = future.result()
            if outcome is None:
                counts["refused"] += 1
                continue
            text, reason = outcome
            if reason != "stop":
                counts["cut off"] += 1
                continue
            try:
                value = json.loads(text)
            except ValueError:
                raise AssertionError(f"no JSON: {name}, {schema}: {text!r}") from None
            errors = list(Draft202012Validator(schema).iter_errors(value))
            assert not errors, (name, schema, text, errors[0].message)
            counts["valid"] += 1
    print(f"{len(groups)} schemas, {SEEDS} answers of at most {MAX_TOKENS} tokens each: {dict(counts)}")
    assert counts["valid"] > 100


main()
