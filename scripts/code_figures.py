#!/usr/bin/env python3
"""Figures of C++ code: sizes of files and functions, arguments, comments, columns, methods, locks. They show a direction and are
no limits. The parser is a rough one (it knows braces, not C++), the same for every tree, so trees can be compared.

  code_figures.py [FOLDER ...]     each folder is a tree of its own, such as a checkout of another project; without one, this repository
                                   (tests, examples and third-party code are left out)
Example:
  scripts/code_figures.py . ../leveldb ../eRPC
"""
import pathlib
import re
import sys

SUFFIXES = {".h", ".hpp", ".cc", ".cpp", ".cu", ".cuh"}
HEADERS = {".h", ".hpp", ".cuh"}
LEFT_OUT = re.compile(r"(^|/)(tests?|third_party|examples?|build[^/]*|\.git)(/|$)|_test\.|_unittest\.|_bench\.")
CONTROL = re.compile(r"\b(if|for|while|switch|catch|do|else|return|new|sizeof|decltype)\b")
TYPE = re.compile(r"\b(class|struct|union|enum)\b")


def stripped(text):
    """The text without comments, literals and preprocessor lines, with the same lines."""
    pattern = r'//[^\n]*|/\*.*?\*/|R"([^()\\ ]{0,16})\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'|^[ \t]*#(?:[^\n]*\\\n)*[^\n]*'
    return re.sub(pattern, lambda m: re.sub(r"[^\n]", " ", m.group(0)), text, flags=re.DOTALL | re.MULTILINE)


def num_arguments(head):
    """Of a function's head, up to its brace."""
    start = head.find("(")
    if re.search(r"operator\s*$", head[:start]):
        start = head.find("(", head.find(")", start))
    depth = commas = 0
    inside = ""
    for c in head[start:]:
        if c in "(<[{":
            depth += 1
        elif c in ")>]}":
            depth -= 1
            if depth == 0:
                break
        elif c == "," and depth == 1:
            commas += 1
        inside += c
    return 0 if inside.strip("( \n") in ("", "void") else commas + 1


class Tree:
    def __init__(self, root):
        self.files, self.functions, self.arguments, self.lengths = [], [], [], []
        self.comments = {"headers": [0, 0], "sources": [0, 0]}
        self.methods, self.open_virtuals = {}, 0
        self.mutexes = self.guarded = 0
        for path in sorted(root.rglob("*")):
            name = path.relative_to(root).as_posix()
            if path.suffix in SUFFIXES and path.is_file() and not LEFT_OUT.search(name):
                self.add(path, name)

    def add(self, path, name):
        text = path.read_text(encoding="utf-8", errors="replace")
        lines = text.splitlines()
        self.files.append(len(lines))
        self.lengths += [len(line) for line in lines]
        kind = self.comments["headers" if path.suffix in HEADERS else "sources"]
        in_block = False
        for line in lines:
            begins = line.lstrip()
            kind[0] += in_block or begins.startswith(("//", "/*"))
            kind[1] += bool(begins)
            in_block = (in_block or begins.startswith("/*")) and "*/" not in line
        code = stripped(text)
        self.mutexes += len(re.findall(r"\b(?:std::(?:shared_)?mutex|Mutex|port::Mutex)\s+\w+\s*(?:GUARDED_BY\([^)]*\)\s*)?;", code))
        self.guarded += len(re.findall(r"\bGUARDED_BY\(", code))
        self.open_virtuals += len(re.findall(r"\bvirtual\b[^;{}=~]*\)[^;{}=~]*\{", code))
        self.scan(code, name)

    def scan(self, code, name):
        scopes = []  # (kind, name, first line, head)
        begin = 0    # of what precedes the next brace
        depth = 0    # of parentheses: braces and semicolons in there begin nothing
        for match in re.finditer(r"[{};()]|\b(?:public|private|protected)\s*:", code):
            c = match.group(0)
            if c in "()":
                depth += 1 if c == "(" else -1
                continue
            if depth > 0:
                continue
            head = code[begin:match.start()]
            if c == "{":
                inside = any(kind == "function" for kind, *_ in scopes)
                kind = "block"
                if not inside:
                    plain = re.sub(r"template\s*<[^{}]*?>\s*(?=class|struct|[\w\[])", "", head)
                    if re.search(r"\bnamespace\b|extern\s*$", plain):
                        kind = "namespace"
                    elif "(" in plain and not re.search(r"=\s*$", plain) and not CONTROL.match(plain.strip()):
                        kind = "function"
                    elif TYPE.search(plain):
                        kind = "type"
                label = (re.findall(r"\b(?:class|struct|union)\s+(?:\w+\([^)]*\)\s+)*(\w+)", head) or [""])[-1] if kind == "type" else ""
                first = code.count("\n", 0, begin + len(head) - len(head.lstrip())) + 1
                if kind == "function":
                    self.arguments.append(num_arguments(head))
                    self.count_method(scopes, name)
                scopes.append((kind, label, first, head))
            elif c == "}" and scopes:
                kind, _, first, _ = scopes.pop()
                if kind == "function":
                    self.functions.append(code.count("\n", 0, match.start()) + 2 - first)
            elif c == ";" and "(" in head and scopes and scopes[-1][0] == "type" and not re.search(r"=\s*[^0d\s]", head):
                self.count_method(scopes, name)
            begin = match.end()

    def count_method(self, scopes, name):
        if scopes and scopes[-1][0] == "type" and scopes[-1][1]:
            key = (name, scopes[-1][1])
            self.methods[key] = self.methods.get(key, 0) + 1


def percentile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(share * len(values)))] if values else 0


def share(part, whole):
    return f"{100 * part / whole:.1f} %" if whole else "-"


def rows_of(tree):
    long = [f"{share(sum(n > limit for n in tree.lengths), len(tree.lengths))}" for limit in (80, 100, 120)]
    large = sorted(((n, key[1]) for key, n in tree.methods.items() if n > 25), reverse=True)
    return {
        "files, lines": f"{len(tree.files)}, {sum(tree.files)}",
        "file lines p50 / p90 / max": " / ".join(str(percentile(tree.files, p)) for p in (0.5, 0.9, 1)),
        "function lines p50 / p90 / p99 / max": " / ".join(str(percentile(tree.functions, p)) for p in (0.5, 0.9, 0.99, 1)),
        "functions with more than 5 arguments": str(sum(n > 5 for n in tree.arguments)),
        "comment lines in headers / in sources": " / ".join(share(*tree.comments[kind]) for kind in ("headers", "sources")),
        "lines of more than 80 / 100 / 120 columns": " / ".join(long),
        "classes with more than 25 methods": ", ".join(f"{name} {n}" for n, name in large) or "none",
        "virtual functions with a body": str(tree.open_virtuals),
        "mutexes, members that say GUARDED_BY": f"{tree.mutexes}, {tree.guarded}",
    }


def main():
    if any(argument.startswith("-") for argument in sys.argv[1:]):
        print(__doc__.strip())
        return 0 if sys.argv[1] in ("-h", "--help") else 2
    roots = [pathlib.Path(argument) for argument in sys.argv[1:]] or [pathlib.Path(__file__).resolve().parent.parent]
    for root in roots:
        if not root.is_dir():
            print(f"code_figures.py: {root} is no folder", file=sys.stderr)
            return 1
    tables = [rows_of(Tree(root)) for root in roots]
    for row in tables[0]:
        print(row)
        for root, table in zip(roots, tables):
            print(f"    {root.resolve().name:<16} {table[row]}")
    return 0


sys.exit(main())
