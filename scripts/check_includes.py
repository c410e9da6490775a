#!/usr/bin/env python3
"""Holds includes and CMake link lines against the table of who may depend on whom, and says which types two headers define: programs
that link both would mix them up.

  check_includes.py [ROOT]      prints FILE:LINE for every violation; exit status 1 if there is one
  check_includes.py --self-test runs the check on small trees with known mistakes
"""
import pathlib
import re
import sys
import tempfile

# folder -> folders whose headers it may include and whose libraries it may link
ALLOWED = {
    "base": [],
    "kernels": ["base"],
    "tiers": ["base"],
    "transport": ["base"],
    "gguf": ["base"],
    "text": ["gguf", "base"],
    # What models are called and how they come to this machine; a hub is a stranger in the internet.
    "hub": ["gguf", "transport", "base"],
    "grammar": ["text", "base"],
    "model": ["gguf", "base"],
    "splitter": ["model", "base"],
    "cost": ["splitter", "model", "base"],
    "wire": ["transport", "base"],
    "scheduler": ["base"],
    "node": ["tiers", "kernels", "wire", "transport", "cost", "splitter", "model", "base"],
    "memory_node": ["node", "tiers", "kernels", "wire", "transport", "cost", "splitter", "model", "base"],
    "compute_node": ["node", "tiers", "gguf", "grammar", "kernels", "wire", "transport", "cost", "splitter", "model", "base"],
    "manager": ["scheduler", "wire", "transport", "cost", "splitter", "model", "hub", "base"],
    "api": ["manager", "grammar", "text", "wire", "transport", "model", "base"],
    # The simulator runs the manager's engine in virtual time.
    "plan": ["manager", "text", "scheduler", "tiers", "wire", "cost", "splitter", "model", "base"],
    "cli": ["hub", "plan", "api", "manager", "gguf", "text", "wire", "transport", "cost", "splitter", "model", "base"],
    "quantize": ["cli", "hub", "gguf", "text", "compute_node", "kernels", "splitter", "model", "base"],
    "bench": ["cli", "hub", "plan", "api", "manager", "grammar", "text", "scheduler", "memory_node", "compute_node", "node", "kernels", "wire", "transport", "cost",
              "splitter", "model", "base"],
}
# An inner folder may include what stands above and below it, and of those beside it only these.
BESIDE = {
    "plan/simulate": ["plan/workload"],
    "bench/profile": ["bench/kernels"],
    "bench/record": ["bench/kernels"],
    "bench/dollar": ["bench/kernels", "bench/serve"],
}
# A main, and so the program that is made of it, may do with more than its folder: {main: folders}
ROOTS = {"cli/lamina_main.cc": ["bench", "quantize"]}
# Headers that only their own folder may include.
CONFINED = {"wire/control.pb.h", "wire/codec_fields.h", "wire/engine_fields.h"}
UNCHECKED = ["tests"]  # may include anything; nothing but tests may include it
SUFFIXES = {".h", ".cc", ".cu", ".cuh"}
INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]')
LIBRARY = re.compile(r"\b(lamina_library|lamina_program)\s*\(\s*(\S+)([^)]*)\)")
LINKED = re.compile(r"\blamina_(\w+)\b")
NAMESPACE = re.compile(r"^namespace ([\w:]+) \{", re.MULTILINE)
TYPE = re.compile(r"^(?:struct|class|enum class|union) (\w+)(?: final)?(?:\s*:(?!:)[^;{]*)?\s*\{", re.MULTILINE)


def line_of(text, offset):
    return text.count("\n", 0, offset) + 1


def includes_of(path):
    """(line, folder or None, text) of each include that concerns this repository; None: a quoted path that starts at no known folder."""
    found = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        folder = match.group(2).split("/")[0]
        if "/" in match.group(2) and (folder in ALLOWED or folder in UNCHECKED):
            found.append((number, folder, match.group(2)))
        elif match.group(1) == '"':
            found.append((number, None, match.group(2)))
    return found


def links_of(root, folder):
    """{linked folder: line} over the folder's CMakeLists.txt, and the violations in it."""
    path = root / folder / "CMakeLists.txt"
    links, errors = {}, []
    if not path.exists():
        return links, errors
    text = re.sub(r"#[^\n]*", "", path.read_text(encoding="utf-8"))
    for call in LIBRARY.finditer(text):
        root_of_program = f"{folder}/{call.group(3).split()[0]}" if call.group(1) == "lamina_program" else ""
        for link in LINKED.finditer(call.group(3)):
            target = link.group(1)
            line = line_of(text, call.start(3) + link.start())
            if target == folder or target in ROOTS.get(root_of_program, []):
                continue
            if target in ALLOWED and target not in ALLOWED[folder]:
                errors.append(f"{path.relative_to(root)}:{line}: {folder} must not link {target}; it may link: {', '.join(ALLOWED[folder]) or 'nothing'}")
            elif target in ALLOWED:
                links.setdefault(target, line)
    return links, errors


def reachable(links, folder):
    seen, todo = set(), [folder]
    while todo:
        for target in links[todo.pop()]:
            if target not in seen:
                seen.add(target)
                todo.append(target)
    return seen


def inner_error(including, included):
    """Why a file of the folder `including` must not include one of `included`, both of one room; None if it may."""
    here, there = including + "/", included + "/"
    if here.startswith(there) or there.startswith(here) or included in BESIDE.get(including, []):
        return None
    return f"{including} must not include what stands beside it in {included}"


def types_of(path):
    """(line, name with its namespace) of each type that a header defines outside of others."""
    text = path.read_text(encoding="utf-8")
    namespaces = [(match.start(), match.group(1)) for match in NAMESPACE.finditer(text)]
    for match in TYPE.finditer(text):
        around = [name for start, name in namespaces if start < match.start()]
        yield line_of(text, match.start()), "::".join(around[-1:] + [match.group(1)])


def defined_twice(root):
    seen, errors = {}, []
    for folder in ALLOWED:
        for path in sorted((root / folder).rglob("*.h")):
            name = path.relative_to(root)
            for line, defined in types_of(path):
                other = seen.setdefault(defined, name)
                if other != name:
                    errors.append(f"{name}:{line}: {defined} is defined in {other} too")
    return errors


def check(root):
    links, errors = {}, defined_twice(root)
    for folder in ALLOWED:
        links[folder], found = links_of(root, folder)
        errors += found
    for folder, allowed in ALLOWED.items():
        linked = reachable(links, folder)
        for path in sorted((root / folder).rglob("*")):
            if path.suffix not in SUFFIXES:
                continue
            name = path.relative_to(root)
            for line, target, text in includes_of(path):
                if target in ROOTS.get(str(name), []):
                    continue
                if target is None:
                    errors.append(f'{name}:{line}: "{text}" does not start at the repository\'s root')
                elif target != folder and target not in allowed:
                    errors.append(f"{name}:{line}: {folder} must not include {text}; it may include: {', '.join(allowed) or 'nothing'}")
                elif text in CONFINED and target != folder:
                    errors.append(f"{name}:{line}: only {target} may include {text}")
                elif target == folder:
                    error = inner_error(str(name.parent), text.rpartition("/")[0])
                    if error:
                        errors.append(f"{name}:{line}: {error}")
                elif target not in linked:
                    errors.append(f"{name}:{line}: {folder} includes {text}, but its CMakeLists.txt does not link lamina_{target}")
    return errors


GOOD = {
    "base/status.h": "#include <string>\n",
    "base/CMakeLists.txt": "lamina_library(base DEPS spdlog::spdlog)\n",
    "kernels/linear.cc": '#include "kernels/linear.h"\n#include "base/status.h"\n',
    "kernels/CMakeLists.txt": "lamina_library(kernels DEPS lamina_base)\n",
    "memory_node/CMakeLists.txt": "# not lamina_scheduler\nlamina_library(memory_node DEPS\n  lamina_kernels)\n",
    "memory_node/memory_node_main.cc": '#include "memory_node/store.h"\n#include "base/status.h"\n#include <sys/types.h>\n',
    "cli/lamina_main.cc": '#include "bench/benchmarks.h"\n',
    "cli/CMakeLists.txt": "lamina_library(cli DEPS lamina_base)\nlamina_program(lamina lamina_main.cc DEPS lamina_cli lamina_bench)\n",
    "tests/base/status_test.cc": '#include "compute_node/slices.h"\n',
}
# What is added to GOOD, and the violations that it must give.
MISTAKES = [
    ({"base/log.cc": '\n#include "kernels/linear.h"\n'}, ["base/log.cc:2: base must not include kernels/linear.h; it may include: nothing"]),
    ({"memory_node/a/b.h": '  #  include "compute_node/x.h"\n'},
     ["memory_node/a/b.h:1: memory_node must not include compute_node/x.h; it may include: node, tiers, kernels, wire, transport, cost, splitter, model, base"]),
    ({"memory_node/x_main.cc": "#include <scheduler/scheduler.h>\n"},
     ["memory_node/x_main.cc:1: memory_node must not include scheduler/scheduler.h; it may include: node, tiers, kernels, wire, transport, cost, splitter, model, base"]),
    ({"kernels/a.h": '#include "tests/support/x.h"\n'}, ["kernels/a.h:1: kernels must not include tests/support/x.h; it may include: base"]),
    ({"kernels/cpu/a.h": '#include "kernels/cuda/b.h"\n#include "kernels/c.h"\n'},
     ["kernels/cpu/a.h:1: kernels/cpu must not include what stands beside it in kernels/cuda"]),
    ({"kernels/a.cu": '#include "linear.h"\n'}, ['kernels/a.cu:1: "linear.h" does not start at the repository\'s root']),
    ({"memory_node/x.cc": '#include "transport/transport.h"\n'},
     ["memory_node/x.cc:1: memory_node includes transport/transport.h, but its CMakeLists.txt does not link lamina_transport"]),
    ({"wire/codec.cc": '#include "wire/control.pb.h"\n', "memory_node/CMakeLists.txt": "lamina_library(memory_node DEPS lamina_kernels lamina_wire)\n",
      "memory_node/x.cc": '#include "wire/control.pb.h"\n'},
     ["memory_node/x.cc:1: only wire may include wire/control.pb.h"]),
    ({"kernels/CMakeLists.txt": "lamina_library(kernels\n  DEPS lamina_base lamina_transport)\n"},
     ["kernels/CMakeLists.txt:2: kernels must not link transport; it may link: base"]),
    ({"cli/doctor.cc": '#include "bench/benchmarks.h"\n', "cli/CMakeLists.txt": "lamina_library(cli DEPS lamina_base lamina_bench)\n"},
     ["cli/CMakeLists.txt:1: cli must not link bench; it may link: " + ", ".join(ALLOWED["cli"]),
      "cli/doctor.cc:1: cli must not include bench/benchmarks.h; it may include: " + ", ".join(ALLOWED["cli"])]),
    ({"kernels/a.h": "namespace lamina {\nstruct A {\n", "base/a.h": "namespace lamina {\nstruct A;\nclass B final : public A {\n", "base/b.h": "namespace lamina::b {\nclass A {\n",
      "kernels/b.h": "\nnamespace lamina {\n\nstruct B {\n  struct A {\n"}, ["kernels/b.h:4: lamina::B is defined in base/a.h too"]),
]


def self_test():
    failures = 0
    for change, expected in [({}, [])] + MISTAKES:
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name, text in {**GOOD, **change}.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text, encoding="utf-8")
            found = check(root)
        if found != expected:
            failures += 1
            print(f"self-test: {change}\n  expected {expected}\n  found    {found}", file=sys.stderr)
    return failures


def main():
    if sys.argv[1:] == ["--self-test"]:
        return 1 if self_test() else 0
    root = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent.parent
    errors = check(root)
    for error in errors:
        print(error, file=sys.stderr)
    return 1 if errors else 0


sys.exit(main())
