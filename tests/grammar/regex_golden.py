#!/usr/bin/env python3
"""Writes regex_golden.json: patterns, strings, and which of them Python's `re` matches from end to end and anywhere.

  regex_golden.py > regex_golden.json
"""
import json
import random
import re

PATTERNS = [
    "", "a", "abc", "a*", "a+", "a?", "a{3}", "a{2,}", "a{2,4}", "a{0}", "a{0,2}", "(ab)*", "(ab)+c?", "(a|b)*abb", "a|b|", "|a", "(|a)b",
    "(a|ab)(c|bcd)(d*)", "(a*)*", "(a*)+b", "(a+)+b", "(a?){5}a{5}", "((a|b){2}){2}", "(a{2}){3}", "(a{1,2}){2,3}b", "x(ab|cd){2,3}y",
    "[abc]", "[^abc]", "[a-c]+", "[a-cx-z]{2}", "[-a]+", "[a-]+", "[.]", "[*+?]", "[a\\]b]+", "[\\^a]+", "[a^]+", "[\\\\]", "[^\\n]", "[\\t ]+",
    "\\d+", "\\D+", "\\w+", "\\W+", "\\s+", "\\S+", "[\\d]+", "[\\da-f]+", "[^\\d]+", "[\\w-]+", "[^\\w]+", "[\\s\\d]+", "[^\\s]+", "[^\\sa]+",
    "[\\D]+", "[^\\D]+", "[^\\W_]+", "[\\S]+", ".", ".*", ".+b", "a.c", "a.*c", "(.)(.)", ".{2,3}", "\\.", "a\\.b", "\\*", "\\+\\?", "\\(a\\)", "\\[a\\]",
    "\\{a\\}", "\\|", "\\^a\\$", "\\/", "/", "\\-", "\\n", "\\t", "a\\x41b", "\\u0041+", "\\u00e9", "[\\u00e0-\\u00ff]+", "é+", "[é日]+", "日本?", "😀+", "[😀-😂]",
    "[^é]", "^abc$", "^a|b$", "^a$|^b$", "^", "$", "^$", "^(a|b)$", "a$", "^a*", "(?:ab)+", "(?:a|b)c", "(?P<name>a+)b", "a*?", "a+?b", "a??b", "a{2,3}?", "(a*?)b",
    "-?(0|[1-9]\\d*)", "-?(0|[1-9]\\d*)(\\.\\d+)?([eE][+-]?\\d+)?", "[A-Z]{2}\\d{2,4}", "(\\d{1,3}\\.){3}\\d{1,3}", "[a-z0-9._]+@[a-z]+\\.[a-z]{2,3}",
    "\\d{4}-\\d{2}-\\d{2}", "(yes|no|maybe)", "(?:(?:a)(?:b)?)+", "#[0-9a-fA-F]{6}", "\"[^\"]*\"", "\\\"a\\\"", "'a'", "(a|b|c|d|e)+f", "((((a))))", "a{1}b{1}",
    "(ab?){3}", "(a|b){3,}", "[ab]{0,3}c", "(a{0,2}b{0,2}){2}", "(?:\\d+,)*\\d+", "\\w+( \\w+)*", "<(a|b)>.*</(a|b)>", "[ -~]+", "[!-/:-@]+", "a\\sb", "\\S+\\s\\S+",
    "\\0", "[\\x00-\\x1f]+", "\\f|\\v|\\r", "a  b", "a{10,12}", "(a|aa)+b", "(ab|a)(bc|c)", "x*y*z*", "(x*y*)*z", "(x|y|xy)*", "[a-c][^a-c]", "a\\d?\\.?", "(0[1-9]|1[0-2])",
]
NUM_PATTERNS = 1000  # with random ones
ALPHABET = ["a", "b", "c", "d", "x", "y", "z", "A", "F", "0", "1", "9", ".", "-", " ", "\n", "\t", "\"", "\\", "/", "_", "é", "日", "😀", "*", "[", "]", "{", "(", "|", "^", "$", "'", ","]


def near(pattern, rng):
    """A string made of pieces of the pattern, which is often close to what it matches."""
    text = re.sub(r"\\(.)", r"\1", re.sub(r"[()\[\]{}?*+|^$]", "", pattern))
    pieces = list(text) or ["a"]
    return "".join(rng.choice(pieces) if rng.random() < 0.85 else rng.choice(ALPHABET) for _ in range(rng.randrange(9)))


def strings_for(pattern, rng):
    chosen = {"", "a", "b", "ab", "abc", "abb", "aab", "aaa", "é", "日", "A1", "09"}
    for _ in range(40):
        chosen.add(near(pattern, rng))
        chosen.add("".join(rng.choice(ALPHABET[:10]) for _ in range(rng.randrange(6))))
    by_match = {True: [], False: []}
    for text in sorted(chosen):
        by_match[re.fullmatch(pattern, text) is not None].append(text)
    # What matches is rarer.
    return sorted(by_match[True][:16] + rng.sample(by_match[False], min(14, len(by_match[False]))))


# Classes with characters of theirs.
CLASSES = [("[a-c]", "abc"), ("[^ab]", "cxé1"), ("[^a-c\\n]", "xyz0"), ("\\d", "0123"), ("\\w", "ax_9"), ("\\s", " \t"), ("\\D", "a-é"), ("\\W", "-. "), ("\\S", "a1."),
           (".", "aé\""), ("[x\\d]", "x09"), ("[^\\d]", "ab"), ("[^\\w.]", "- "), ("[a-cx-z_-]", "ay-_"), ("[é日]", "é日"), ("[\\u00e0-\\u00ff]", "éü"), ("[.*+]", ".*+")]
LITERALS = ["a", "b", "c", "x", "y", "0", "1", "-", " ", "é", "日", "😀", "\"", "ab", "abc", "\\.", "\\*", "\\\\", "\\(", "\\n", "/", ","]
QUANTIFIERS = [("*", 0, 3), ("+", 1, 3), ("?", 0, 1), ("{2}", 2, 2), ("{1,3}", 1, 3), ("{2,}", 2, 4), ("{0,2}", 0, 2), ("*?", 0, 3), ("+?", 1, 3), ("??", 0, 1), ("{1,2}?", 1, 2)]


def random_part(rng, depth):
    """A pattern that a quantifier may follow, and a function that draws a text which it matches."""
    kind = rng.random()
    if depth > 0 and kind < 0.35:
        pattern, draw = random_pattern(rng, depth - 1)
        return rng.choice(["(%s)", "(?:%s)"]) % pattern, draw
    if kind < 0.65:
        pattern, members = rng.choice(CLASSES)
        return pattern, lambda: rng.choice(members)
    literal = rng.choice(LITERALS)
    if len(literal) > 1 and not literal.startswith("\\"):
        return "(?:%s)" % literal, lambda: literal
    text = "\n" if literal == "\\n" else literal[-1]
    return literal, lambda: text


def random_pattern(rng, depth):
    """Likewise, of alternatives."""
    branches = []
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        parts = []
        for _ in range(rng.choice([1, 1, 2, 2, 3, 4])):
            pattern, draw = random_part(rng, depth)
            quantifier, least, most = rng.choice(QUANTIFIERS) if rng.random() < 0.45 else ("", 1, 1)
            parts.append((pattern + quantifier, lambda draw=draw, least=least, most=most: "".join(draw() for _ in range(rng.randint(least, most)))))
        branches.append(parts)
    return ("|".join("".join(pattern for pattern, _ in parts) for parts in branches),
            lambda: "".join(draw() for _, draw in rng.choice(branches)))


def random_case(rng):
    pattern, draw = random_pattern(rng, 2)
    texts = set()
    for _ in range(5):
        text = draw()
        texts.add(text)
        at = rng.randrange(len(text) + 1)
        texts.add(text[:at] + rng.choice(ALPHABET[:30] + [""]) + text[at + rng.randrange(2):])
    texts.add("".join(rng.choice(ALPHABET[:10]) for _ in range(rng.randrange(6))))
    return pattern, sorted(texts)


def judged(pattern, texts):
    """The case, of texts for which \\w and the like are the same for ASCII's and for all characters."""
    both = [re.compile(pattern), re.compile(pattern, re.ASCII)]
    verdicts = [(text, [(one.fullmatch(text) is not None, one.search(text) is not None) for one in both]) for text in texts]
    clear = [(text, found[0]) for text, found in verdicts if found[0] == found[1]]
    return {"pattern": pattern, "strings": [text for text, _ in clear], "whole": "".join("01"[whole] for _, (whole, _) in clear),
            "within": "".join("01"[within] for _, (_, within) in clear)}


def main():
    rng = random.Random(7)
    cases = [judged(pattern, strings_for(pattern, rng)) for pattern in PATTERNS]
    seen = set(PATTERNS)
    while len(cases) < NUM_PATTERNS:
        pattern, texts = random_case(rng)
        if pattern in seen or len(pattern) > 60:
            continue
        seen.add(pattern)
        cases.append(judged(pattern, texts))
    print("[")
    print(",\n".join(json.dumps(case, ensure_ascii=True) for case in cases))
    print("]")


if __name__ == "__main__":
    main()
