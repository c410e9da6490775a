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


def main():
    rng = random.Random(7)
    cases = []
    for pattern in PATTERNS:
        compiled = re.compile(pattern)
        texts = strings_for(pattern, rng)
        cases.append({"pattern": pattern, "strings": texts,
                      "whole": "".join("1" if compiled.fullmatch(text) else "0" for text in texts),
                      "within": "".join("1" if compiled.search(text) else "0" for text in texts)})
    print("[")
    print(",\n".join(json.dumps(case, ensure_ascii=True) for case in cases))
    print("]")


if __name__ == "__main__":
    main()
