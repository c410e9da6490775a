#!/usr/bin/env python3
"""Writes schema_golden.json: schemas, values that are valid by the Python package jsonschema, and values near to them that are not.

  schema_golden.py > schema_golden.json
"""
import copy
import json
import random

from jsonschema import Draft202012Validator

NODE = {"type": "object", "properties": {"v": {"type": "integer"}, "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}},
        "required": ["v", "next"], "additionalProperties": False}
# As pydantic writes it.
INVOICE = {
    "$defs": {
        "Line": {"properties": {"item": {"title": "Item", "type": "string"}, "count": {"minimum": 1, "title": "Count", "type": "integer"},
                                "price": {"minimum": 0, "title": "Price", "type": "number"}}, "required": ["item", "count", "price"],
                 "title": "Line", "type": "object"},
        "Status": {"enum": ["open", "paid"], "title": "Status", "type": "string"}},
    "properties": {"number": {"pattern": "^INV-\\d{4}$", "title": "Number", "type": "string"}, "day": {"format": "date", "type": "string"},
                   "status": {"$ref": "#/$defs/Status", "default": "open"}, "lines": {"items": {"$ref": "#/$defs/Line"}, "maxItems": 3, "minItems": 1, "type": "array"},
                   "note": {"anyOf": [{"maxLength": 5, "type": "string"}, {"type": "null"}], "default": None}},
    "required": ["number", "day", "lines"], "title": "Invoice", "type": "object"}
CAT = {"type": "object", "properties": {"kind": {"const": "cat"}, "lives": {"type": "integer"}}, "required": ["kind", "lives"]}
DOG = {"type": "object", "properties": {"kind": {"const": "dog"}, "name": {"type": "string"}}, "required": ["kind"]}
TREE = {"type": "array", "items": {"anyOf": [{"type": "integer"}, {"$ref": "#"}]}}

# (schema, values that are valid and have to be possible)
CASES = [
    (True, [1, "x", [], {}, None, {"a": [1, {"b": None}]}]),
    ({"type": "null"}, [None]),
    ({"type": "boolean"}, [True, False]),
    ({"type": ["string", "null"]}, ["x", None, "a\"b\\c\n\u0001é😀/"]),
    ({"type": "integer"}, [0, -7, 12345678901234567890]),
    ({"type": "number"}, [0, -7, 0.5, -1.25e-07, 1e+30]),
    ({"enum": ["a", 1, 2.5, None, True, {"x": [1, 2]}, ""]}, ["a", 1, 2.5, None, True, {"x": [1, 2]}, ""]),
    ({"const": "x/y\n"}, ["x/y\n"]),
    ({"type": "string", "enum": ["ab", "abc", 3]}, ["ab", "abc"]),
    ({"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0, "maximum": 150}}, "required": ["name", "age"]},
     [{"name": "a\"b", "age": 150}, {"name": "", "age": 0}]),
    ({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "boolean"}, "c": {"type": "null"}}, "required": ["b"]},
     [{"b": True}, {"a": 1, "b": False}, {"b": True, "c": None}, {"a": 1, "b": True, "c": None}]),
    ({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}, [{}, {"a": 1}, {"b": 1}, {"a": 1, "b": 2}]),
    ({"type": "object", "properties": {"a": {"type": "integer"}, "ab\"": {"type": "integer"}}, "additionalProperties": {"type": "string"}},
     [{}, {"a": 1}, {"a": 1, "b": "x"}, {"ab": "x"}, {"": "x"}, {"ab\"": 2, "ab\"c": "x", "é": ""}]),
    ({"type": "object", "additionalProperties": {"type": "integer"}}, [{}, {"a": 1, "b": 2}]),
    ({"type": "object", "additionalProperties": False}, [{}]),
    ({"type": "object", "required": ["q"]}, [{"q": 1}, {"q": {"r": 1}, "s": []}]),
    ({"type": "object", "properties": {"a": {}, "b": {}}, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]}, [{"a": 1}, {"b": 2}, {"a": 1, "b": 2}]),
    ({"type": "array", "items": {"type": "boolean"}}, [[], [True], [True, False, True]]),
    ({"type": "array", "items": {"type": "boolean"}, "minItems": 1}, [[True], [True, False, True]]),
    ({"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 3}, [[True, True], [True, False, True]]),
    ({"type": "array", "maxItems": 0}, [[]]),
    ({"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}], "items": False}, [["a", 1], ["a"], []]),
    ({"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}], "items": {"type": "null"}, "minItems": 3}, [["a", 1, None], ["a", 1, None, None]]),
    ({"type": "array", "prefixItems": [{"type": "string"}], "minItems": 1, "maxItems": 2}, [["a"], ["a", {"b": 1}]]),
    ({"$ref": "#/$defs/node", "$defs": {"node": NODE}}, [{"v": 1, "next": None}, {"v": 1, "next": {"v": 2, "next": {"v": 3, "next": None}}}]),
    (TREE, [[], [1, [2, [], [3]], 4]]),
    ({"type": "string", "minLength": 2, "maxLength": 5}, ["ab", "abcde", "äöü", "😀😀"]),
    ({"type": "string", "minLength": 3}, ["abc", "a\"\\\n", "abcdefgh"]),
    ({"type": "string", "maxLength": 1}, ["", "😀", "\n"]),
    ({"type": "string", "pattern": "^[A-Z]{2}\\d{3}$"}, ["AB123"]),
    ({"type": "string", "pattern": "b+"}, ["abc", "b", "xbby"]),
    ({"type": "string", "pattern": "^a|z$"}, ["a", "abc", "xz"]),
    ({"type": "string", "pattern": "^[^\"]*\"\\\\\n$"}, ["a\"\\\n"]),
    ({"type": "string", "format": "date"}, ["2024-02-29", "2000-02-29", "0001-01-01", "9999-12-31", "2023-04-30"]),
    ({"type": "string", "format": "uuid"}, ["123e4567-e89b-12d3-a456-426614174000"]),
    ({"type": "string", "format": "ipv4"}, ["255.0.10.1", "0.0.0.0"]),
    ({"oneOf": [CAT, DOG]}, [{"kind": "cat", "lives": 9}, {"kind": "dog"}, {"kind": "dog", "name": "Rex"}]),
    ({"oneOf": [{"type": "string"}, {"type": "integer"}, {"type": "array", "items": {"type": "string"}}]}, ["x", 1, ["a"]]),
    ({"anyOf": [{"type": "integer", "maximum": 3}, {"type": "integer", "minimum": 10}]}, [3, -5, 10, 99]),
    ({"allOf": [{"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}, {"properties": {"b": {"type": "string"}}, "required": ["b"]}]}, [{"a": 1, "b": "x"}]),
    ({"allOf": [{"type": "integer", "minimum": 2}, {"maximum": 4}]}, [2, 3, 4]),
    ({"allOf": [{"$ref": "#/$defs/x"}], "properties": {"q": {"type": "integer"}},
      "$defs": {"x": {"type": "object", "properties": {"p": {"anyOf": [{"type": "string"}, {"type": "null"}]}}, "required": ["p"]}}}, [{"q": 1, "p": None}, {"p": "x"}]),
    ({"$ref": "#/$defs/a~1b%25", "description": "d", "$defs": {"a/b%": {"anyOf": [{"type": "string"}, {"$ref": "#/$defs/y"}]}, "y": {"type": "boolean"}}}, ["a", True]),
    ({"type": "integer", "minimum": -5, "exclusiveMaximum": 17}, [-5, 0, 16]),
    ({"type": "integer", "exclusiveMinimum": 99}, [100, 999, 1000, 12345678901234]),
    ({"type": "integer", "maximum": -98}, [-98, -99, -100, -5000]),
    ({"type": "integer", "minimum": 2.5}, [3, 11]),
    ({"type": "number", "minimum": 0, "maximum": 1}, [0, 1, 0.5, 1.0, 0.999]),
    ({"type": "number", "exclusiveMinimum": 0}, [0.1, 5, 1000.5]),
    ({"type": "number", "exclusiveMaximum": 0}, [-0.1, -5]),
    ({"type": "number", "minimum": -2.5, "maximum": -1.25}, [-2.5, -1.25, -2, -1.3]),
    ({"type": "number", "minimum": -1.5, "exclusiveMaximum": 2.25}, [0, -1.5, 2.2499, 2, 1.9, -0.75]),
    (INVOICE, [{"number": "INV-0042", "day": "2024-02-29", "status": "paid", "lines": [{"item": "a", "count": 1, "price": 0.5}], "note": "abcde"},
               {"number": "INV-0042", "day": "2024-01-31", "lines": [{"item": "a", "count": 1, "price": 7}, {"item": "", "count": 22, "price": 0}], "note": None}]),
]
OTHERS = [None, True, 0, -1, 1.5, "", "a", "abcdef", "2023-02-29", [], [1], {}, {"a": 1}]


def places(value, path=()):
    yield path
    for key in value.keys() if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield from places(value[key], path + (key,))


def mutated(value, rng):
    """The value with another one, or nothing, in one of its places, or with something more."""
    path = rng.choice(list(places(value)))
    if not path:
        if isinstance(value, str) and rng.random() < 0.7:
            at = rng.randrange(len(value) + 1)
            return value[:at] + rng.choice(["", "x", "9", "-", "é"]) + value[at + rng.randrange(2):]
        if isinstance(value, (int, float)) and not isinstance(value, bool) and rng.random() < 0.7:
            return value + rng.choice([-1000, -100, -10, -1, -0.25, 0.25, 1, 10, 100, 1000])
        return rng.choice(OTHERS)
    out = copy.deepcopy(value)
    inner = out
    for key in path[:-1]:
        inner = inner[key]
    if rng.random() < 0.4:
        del inner[path[-1]]
    elif rng.random() < 0.3 and isinstance(inner, dict):
        inner["zz"] = rng.choice(OTHERS)
    else:
        inner[path[-1]] = mutated(inner[path[-1]], rng)
    return out


def main():
    rng = random.Random(3)
    cases = []
    for schema, valid in CASES:
        validator = Draft202012Validator(schema, format_checker=Draft202012Validator.FORMAT_CHECKER)
        for value in valid:
            assert validator.is_valid(value), (schema, value)
        invalid = {json.dumps(value, ensure_ascii=False) for value in OTHERS if not validator.is_valid(value)}
        for _ in range(60):
            value = mutated(rng.choice(valid), rng)
            if not validator.is_valid(value):
                invalid.add(json.dumps(value, ensure_ascii=False))
        cases.append({"schema": schema, "valid": [json.dumps(value, ensure_ascii=False) for value in valid],
                      "invalid": rng.sample(sorted(invalid), min(24, len(invalid)))})
    print("[")
    print(",\n".join(json.dumps(case) for case in cases))
    print("]")


if __name__ == "__main__":
    main()
