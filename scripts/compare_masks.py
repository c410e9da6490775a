#!/usr/bin/env python3
"""What structured output costs in lamina, xgrammar and llguidance: compiling a schema, and finding the tokens that may come next.

  pip install xgrammar llguidance mistral-common tiktoken numpy      # xgrammar needs torch
  scripts/compare_masks.py --svg docs/structured_output.svg

All three have the vocabulary of Mistral's tekken tokenizer (131,072 tokens, in the package mistral-common), the same schemas, and the same texts in
that tokenizer's tokens, valid by the schema. A mask's time is that of taking the last token and finding what may follow, behind each token of
each text. Before the first text the schema was compiled and nothing else; `again` are the same texts once more. lamina is `lamina bench grammar`
in a process of its own, the others are called from Python, which adds about a microsecond. Times are those of one thread. The programs take
turns, --rounds times over, and medians are compared.
"""

import argparse
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

import llguidance
import llguidance.numpy
import numpy
import xgrammar
from mistral_common.tokens.tokenizers.tekken import Tekkenizer
import mistral_common

ROOT = pathlib.Path(__file__).resolve().parent.parent
END = 2  # of a text, in the tokenizer
dice = random.Random(7)
stories = (ROOT / "models/tiny-stories/held_out.txt").read_text().splitlines()


def words(least, most):
    parts = dice.choice(stories).split()
    begin = dice.randrange(max(1, len(parts) - most))
    return " ".join(parts[begin:begin + dice.randint(least, most)])


def tree(depth):
    return {"value": words(1, 4), "children": [tree(depth - 1) for _ in range(dice.randint(0, 3) if depth else 0)]}


def anything(depth):
    kind = dice.randrange(7 if depth else 4)
    if kind < 4:
        return [words(1, 8), dice.randint(-999, 99999), round(dice.uniform(-50, 50), 3), dice.choice([True, False, None])][kind]
    return [anything(depth - 1) for _ in range(3)] if kind == 4 else {words(1, 2): anything(depth - 1) for _ in range(4)}


def record():
    return {"type": "object", "required": ["title", "count", "kind", "day", "parts"], "additionalProperties": False, "properties": {
        "title": {"type": "string", "maxLength": 40}, "count": {"type": "integer", "minimum": 0, "maximum": 1000},
        "kind": {"enum": ["first", "second", "third"]}, "day": {"type": "string", "format": "date"},
        "parts": {"type": "array", "items": {"anyOf": [{"type": "string"}, {"type": "number"}, {"type": "null"}]}, "maxItems": 20}}}


def a_record():
    title = words(2, 6).replace('"', "")[:40]  # xgrammar has no escapes where a length is bounded
    return {"title": title, "count": dice.randint(0, 1000), "kind": dice.choice(["first", "second", "third"]),
            "day": f"20{dice.randint(10, 30)}-{dice.randint(1, 12):02}-{dice.randint(1, 28):02}",
            "parts": [dice.choice([words(1, 6), dice.randint(0, 99), None]) for _ in range(dice.randrange(5))]}


def closed(properties, **more):
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False, **more}


SECTIONS = [f"section_{i}" for i in range(10)]
CITIES = sorted({words(1, 2).strip('."?!,').title() for _ in range(900)})[:400]
NODE = closed({"value": {"type": "string"}, "children": {"type": "array", "items": {"$ref": "#/$defs/node"}}})
# Name, schema, a value of it.
CASES = [
    ("a call of a tool", closed({"name": {"const": "weather"}, "arguments": closed(
        {"city": {"type": "string"}, "unit": {"enum": ["celsius", "fahrenheit"]}, "days": {"type": "integer", "minimum": 1, "maximum": 14}})}),
     lambda: {"name": "weather", "arguments": {"city": words(1, 2), "unit": dice.choice(["celsius", "fahrenheit"]), "days": dice.randint(1, 14)}}),
    ("a long answer", closed({"thoughts": {"type": "string"}, "answer": {"type": "string"}}),
     lambda: {"thoughts": words(40, 60), "answer": 'He said: "' + words(5, 10) + '"\n– ☃ é'}),
    ("a record of 5 kB", closed({name: record() for name in SECTIONS}), lambda: {name: a_record() for name in SECTIONS}),
    ("any object", {"type": "object"}, lambda: {words(1, 2): anything(3) for _ in range(5)}),
    ("a matrix", closed({"rows": {"type": "array", "items": {"type": "array", "items": {"type": "number"}}}}),
     lambda: {"rows": [[round(dice.uniform(-9, 9), dice.randint(0, 4)) for _ in range(5)] for _ in range(6)]}),
    ("a tree", {"$defs": {"node": NODE}, "$ref": "#/$defs/node"}, lambda: tree(4)),
    ("one of 400 names", closed({"city": {"enum": CITIES}, "again": {"enum": CITIES}}),
     lambda: {"city": dice.choice(CITIES), "again": dice.choice(CITIES)}),
    ("patterns", closed({"id": {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{6}$"}, "path": {"type": "string", "pattern": "^(/[a-z0-9_]+)+$"}}),
     lambda: {"id": f"{dice.choice(['AB', 'QX'])}-{dice.randrange(10**6):06}",
              "path": "".join("/" + word.lower() for word in words(1, 5).split() if word.isalpha()) or "/x"}),
]


def clock():
    return time.thread_time_ns() / 1000


class XGrammar:
    def __init__(self, tokens, encode):
        self.compiler = xgrammar.GrammarCompiler(xgrammar.TokenizerInfo(tokens, xgrammar.VocabType.RAW, vocab_size=len(tokens), stop_token_ids=[END]),
                                                 max_threads=1, cache_enabled=False)
        self.bits = numpy.zeros((1, (len(tokens) + 31) // 32), dtype=numpy.int32)

    def compile(self, schema):
        return self.compiler.compile_json_schema(schema)

    def follow(self, compiled, text, times):
        matcher = xgrammar.GrammarMatcher(compiled)
        for token in [None, *text]:
            begin = clock()
            allowed = token is None or matcher.accept_token(token)
            matcher.fill_next_token_bitmask(self.bits)
            times.append(clock() - begin)
            assert allowed, "xgrammar does not allow a text"


class LLGuidance:
    def __init__(self, tokens, encode):
        class Source:
            eos_token_id, bos_token_id, special_token_ids = END, 1, [i for i, token in enumerate(tokens) if not token]

            def __call__(self, text):
                return encode(text.decode() if isinstance(text, bytes) else text)

        Source.tokens = [token or f"<special_{i}>".encode() for i, token in enumerate(tokens)]
        # For JSON, as its authors advise.
        self.tokenizer = llguidance.LLTokenizer(llguidance.TokenizerWrapper(Source()), slices=llguidance.LLTokenizer.json_slices())
        self.bits = numpy.zeros((1, (len(tokens) + 31) // 32), dtype=numpy.int32)

    def compile(self, schema):
        matcher = llguidance.LLMatcher(self.tokenizer, llguidance.LLMatcher.grammar_from_json_schema(schema))
        assert not matcher.is_error(), matcher.get_error()
        return matcher

    def follow(self, matcher, text, times):
        matcher.reset()
        for token in [None, *text]:
            begin = clock()
            allowed = token is None or matcher.consume_token(token)
            llguidance.numpy.fill_next_token_bitmask(matcher, self.bits)
            times.append(clock() - begin)
            assert allowed, "llguidance does not allow a text"


def percentiles(times):
    times = sorted(times)
    return {"p50": statistics.median(times), "p99": times[min(len(times) - 1, int(len(times) * 0.99))], "largest": times[-1]}


def measure(program, schema, texts):
    compiles = []
    for _ in range(5):
        begin = clock()
        compiled = program.compile(schema)
        compiles.append(clock() - begin)
    told = {"compile": {"p50": statistics.median(compiles)}}
    for when in ("first", "again"):
        times = []
        for text in texts:
            program.follow(compiled, text, times)
        told[when] = percentiles(times)
    return told


def measure_lamina(lamina, file):
    done = subprocess.run([lamina, "bench", "grammar", "--recorded", file, "--json"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"lamina bench grammar: exit status {done.returncode}\n{done.stderr[-2000:]}")
    told = {}
    for line in map(json.loads, done.stdout.splitlines()):
        what = {"grammar compile": "compile", "grammar first masks": "first", "grammar masks again": "again"}[line["name"]]
        entry = told.setdefault(line["case"]["constraint"], {})[what] = {"p50": line["value"], "p99": line["p99"]}
        entry["largest"] = (line.get("details") or {}).get("largest_us", 0)
    return told


def picture(names, median, programs):
    """Bars of masks' p99, logarithmic, with the limit of 50 us."""
    colors, width, left, top, bar = {"lamina": "#1f6feb", "xgrammar": "#d97706", "llguidance": "#6b7280"}, 760, 150, 46, 11
    group = bar * 3 + 14
    place = lambda us: left + max(0.0, min(1.0, (numpy.log10(max(us, 0.1)) + 1) / 5)) * (width - left - 70)
    height = top + group * len(names) + 20
    yield f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">'
    yield f'<rect width="{width}" height="{height}" fill="white"/>'
    for i, program in enumerate(programs):
        yield f'<rect x="{left + 130 * i}" y="8" width="10" height="10" fill="{colors[program]}"/><text x="{left + 130 * i + 15}" y="18">{program}</text>'
    for us, label in ((0.1, "0.1 µs"), (1, "1 µs"), (10, "10 µs"), (100, "100 µs"), (1000, "1 ms"), (50, "50")):
        yield (f'<line x1="{place(us):.1f}" x2="{place(us):.1f}" y1="{top - 6}" y2="{height - 18}" stroke="{"#dc2626" if us == 50 else "#ddd"}"/>'
               f'<text x="{place(us):.1f}" y="{top - 10}" text-anchor="middle" fill="{"#dc2626" if us == 50 else "#666"}">{label}</text>')
    for row, name in enumerate(names):
        y = top + group * row
        yield f'<text x="{left - 8}" y="{y + 21}" text-anchor="end">{name}</text>'
        for i, program in enumerate(programs):
            us = median(program, name, "first", "p99")
            yield (f'<rect x="{left}" y="{y + bar * i}" width="{place(us) - left:.1f}" height="{bar - 1}" fill="{colors[program]}"/>'
                   f'<text x="{place(us) + 4:.1f}" y="{y + bar * i + 9}" font-size="10">{us:.3g}</text>')
    yield "</svg>"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lamina", default=str(ROOT / "build/release/bin/lamina"))
    parser.add_argument("--texts", type=int, default=20, help="of each schema")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", help="write all figures to this file")
    parser.add_argument("--svg", help="write the picture to this file")
    args = parser.parse_args()

    tekken = Tekkenizer.from_file(pathlib.Path(mistral_common.__file__).parent / "data/tekken_240911.json")
    num_special = tekken.num_special_tokens
    tokens = [b"" if i < num_special else tekken.id_to_byte_piece(i) for i in range(tekken.n_words)]
    encode = lambda text: tekken.encode(text, bos=False, eos=False)
    cases = [(name, json.dumps(schema), [encode(json.dumps(value(), ensure_ascii=False)) for _ in range(args.texts)]) for name, schema, value in CASES]

    rounds = []
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "recorded.json")
        recorded = {"tokens": [token.hex() for token in tokens], "cases": [dict(zip(("name", "schema", "texts"), case)) for case in cases]}
        pathlib.Path(file).write_text(json.dumps(recorded))
        peers = {"xgrammar": XGrammar(tokens, encode), "llguidance": LLGuidance(tokens, encode)}
        for number in range(args.rounds):
            print(f"round {number + 1} of {args.rounds}", file=sys.stderr)
            told = {"lamina": measure_lamina(args.lamina, file)}
            for program, peer in peers.items():
                told[program] = {name: measure(peer, schema, texts) for name, schema, texts in cases}
            rounds.append(told)

    programs = ["lamina", *peers]
    median = lambda program, name, what, which: statistics.median(told[program][name][what][which] for told in rounds)
    names = [name for name, _, _ in cases]
    print(f"{len(tokens)} tokens, {args.texts} texts of each schema, medians of {args.rounds} rounds; µs, compiling in ms\n")
    print("| | program | compile, ms | mask p50 | p99 | largest | again p50 | p99 |\n|---|---|---|---|---|---|---|---|")
    for name, schema, texts in cases:
        for program in programs:
            of = lambda what, which: median(program, name, what, which)
            label = f"{name}: {sum(map(len, texts))} tokens, {len(schema)} bytes" if program == "lamina" else ""
            print(f"| {label} | {program} | {of('compile', 'p50') / 1000:.2f} | {of('first', 'p50'):.1f} | {of('first', 'p99'):.1f} "
                  f"| {of('first', 'largest'):.0f} | {of('again', 'p50'):.1f} | {of('again', 'p99'):.1f} |")
    for program in peers:
        over = lambda what, which: statistics.geometric_mean(median(program, name, what, which) / median("lamina", name, what, which) for name in names)
        print(f"\n{program} over lamina, geometric mean: compile {over('compile', 'p50'):.1f}, first masks p50 {over('first', 'p50'):.1f}, "
              f"p99 {over('first', 'p99'):.2f}, again p50 {over('again', 'p50'):.1f}, p99 {over('again', 'p99'):.1f}")
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(rounds))
    if args.svg:
        pathlib.Path(args.svg).write_text("\n".join(picture(names, median, programs)) + "\n")


if __name__ == "__main__":
    main()
