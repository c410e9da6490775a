#!/usr/bin/env python3
"""Decoding of a local lamina cluster, of the same engine in one process, and of llama.cpp's batched decoding on the same cores.

  scripts/compare_llama_cpp.py --gguf tinyllama-f16.gguf --llama-cpp ~/llama.cpp/build/bin
  scripts/compare_llama_cpp.py --gguf tinyllama-f16.gguf --llama-cpp ~/llama.cpp/build/bin --quant f16,q8_0,q4_0,q4_k
  scripts/compare_llama_cpp.py --gguf tinyllama-f16.gguf --llama-cpp ~/llama.cpp/build/bin --quant f16,q4_0 --startup

For each batch and context the programs run in turn, --rounds times over, and medians are compared: a machine whose speed drifts does not
decide. Without --quant lamina computes with made-up weights in bf16 of --model, which should have the shape of the GGUF file. With it both
read the same file: llama-quantize makes one of each format, beside the given one. lamina's prompts are made up (--decode-only); llama.cpp
computes one prompt and copies its KV to every sequence. Without --gguf only lamina is measured.

With --startup it is the seconds until the first token that are compared, with the file in the page cache and without: of `lamina serve`
from its start to the answer to a request, and of llama.cpp, which maps the file, from its start to its end. With --pack `lamina pack` keeps
the weights beside each file first.
"""

import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent


def run_json(command):
    """The last line of what the command prints that is a JSON object."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode != 0 or not lines:
        sys.exit(f"{' '.join(map(str, command))}: exit status {done.returncode}\n{done.stderr[-2000:]}")
    return json.loads(lines[-1])


def lamina(args, model, batch, context):
    return run_json([args.lamina, "bench", "throughput", *model, "--decode-only", "--num-prompts", str(batch),
                     "--max-num-seqs", str(batch), "--input-len", str(context), "--output-len", str(args.tokens),
                     "--memory-nodes", str(args.memory_nodes), "--compute-threads", str(args.threads), "--repeats", str(args.repeats), "--json"])


def llama_cpp(args, gguf, batch, context):
    return run_json([args.llama_cpp / "llama-batched-bench", "-m", gguf, "-c", str(batch * (context + args.tokens + 256)), "-npp", str(context), "-ntg",
                     str(args.tokens), "-npl", str(batch), "-pps", "-fa", args.flash_attention, "-t", str(args.threads), "--output-format",
                     "jsonl"])["speed_tg"]


def quantized(args, name):
    """The GGUF file whose matrices are all in this format."""
    if name == "f16":
        return args.gguf
    path = pathlib.Path(args.gguf).with_suffix(f".{name}.gguf")
    if not path.exists():
        made = path.with_suffix(".part")
        done = subprocess.run([args.llama_cpp / "llama-quantize", "--pure", args.gguf, made, name.upper()], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"llama-quantize to {name}: exit status {done.returncode}\n{done.stderr[-2000:]}")
        made.rename(path)
    return str(path)


def lamina_first_token(args, gguf):
    start = time.monotonic()
    command = [args.lamina, "serve", gguf, "--port", "0", "--memory-nodes", str(args.memory_nodes), "--compute-threads", str(args.threads)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as server:
        try:
            said = []
            served = None
            while served is None:
                said.append(server.stdout.readline())
                if not said[-1]:
                    sys.exit(f"{' '.join(map(str, command))} has ended:\n{''.join(said)[-2000:]}")
                served = re.search(r"is served on (http://\S+)", said[-1])
            request = urllib.request.Request(served[1] + "/completions", json.dumps({"prompt": [1], "max_tokens": 1, "ignore_eos": True}).encode(),
                                             {"Content-Type": "application/json"})
            with urllib.request.urlopen(request) as answer:
                answer.read()
            return time.monotonic() - start
        finally:
            server.terminate()
            server.communicate()


def llama_cpp_first_token(args, gguf):
    start = time.monotonic()
    run_json([args.llama_cpp / "llama-batched-bench", "-m", gguf, "-c", "512", "-npp", "1", "-ntg", "1", "-npl", "1", "-t", str(args.threads),
              "--output-format", "jsonl"])
    return time.monotonic() - start


def leave_page_cache(path):
    file = os.open(path, os.O_RDONLY)
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(file)


def compare_startup(args, weights, gguf):
    read = [gguf]
    if args.pack:
        done = subprocess.run([args.lamina, "pack", gguf], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"lamina pack {gguf}: exit status {done.returncode}\n{done.stderr[-2000:]}")
        read.append(gguf + ".packed")
        weights += ", packed"
    for cold in (True, False):
        seconds = {lamina_first_token: [], llama_cpp_first_token: []}
        for number in range(args.rounds):
            print(f"{weights}, {'cold' if cold else 'warm'}: round {number + 1} of {args.rounds}", file=sys.stderr)
            for measure, measured in seconds.items():
                for file in read if cold else []:
                    leave_page_cache(file)
                measured.append(measure(args, gguf))
        ours, theirs = (statistics.median(measured) for measured in seconds.values())
        print(f"| {weights} | {'cold' if cold else 'warm'} | {ours:.2f} | {theirs:.2f} | {ours / theirs:.2f} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=str(ROOT / "configs/models/llama-1.1b"), help="directory with a config.json")
    parser.add_argument("--gguf", help="a model for llama.cpp")
    parser.add_argument("--llama-cpp", type=pathlib.Path, help="folder with llama-batched-bench and, for --quant, llama-quantize")
    parser.add_argument("--quant", type=lambda text: text.split(","), help="formats of GGUF, with commas between them: f16,q8_0,q4_0,q4_k")
    parser.add_argument("--lamina", default=str(ROOT / "build/release/bin/lamina"))
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--context", type=int, nargs="+", default=[512, 2048])
    parser.add_argument("--tokens", type=int, default=32, help="generated for each sequence")
    parser.add_argument("--memory-nodes", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=1, help="pairs of runs of lamina in each round, after a warm-up")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)),
                        help="of llama.cpp, and of lamina's compute node and its engine in one process; default: the cores that this process may use")
    parser.add_argument("--flash-attention", choices=["on", "off"], default="off", help="of llama.cpp; off is its faster setting on CPUs")
    parser.add_argument("--startup", action="store_true", help="compare the seconds until the first token instead")
    parser.add_argument("--pack", action="store_true", help="with --startup: run `lamina pack` on each file before; its file stays")
    args = parser.parse_args()
    if (args.gguf is None) != (args.llama_cpp is None):
        parser.error("--gguf and --llama-cpp go together")
    if args.pack and not args.startup:
        parser.error("--pack needs --startup")
    if args.quant and not args.gguf:
        parser.error("--quant needs --gguf")
    if args.startup:
        if not args.gguf:
            parser.error("--startup needs --gguf")
        print("| weights | page cache | lamina, s | llama.cpp, s | lamina / llama.cpp |")
        print("|---|---|---|---|---|")
        for weights in args.quant or ["f16"]:
            compare_startup(args, weights, quantized(args, weights))
        return

    print("| weights | batch | context | cluster, tokens/s | in one process | cluster / one process | cluster / limit | llama.cpp | cluster / llama.cpp |")
    print("|---|---|---|---|---|---|---|---|---|")
    for weights in args.quant or ["bf16"]:
        gguf = quantized(args, weights) if args.quant else args.gguf
        model = [gguf] if args.quant else [args.model, "--load-format", "dummy"]
        for context in args.context:
            for batch in args.batch:
                compare(args, weights, model, gguf, batch, context)


def compare(args, weights, model, gguf, batch, context):
    ours, theirs = [], []
    for number in range(args.rounds):
        print(f"{weights}, batch {batch}, context {context}: round {number + 1} of {args.rounds}", file=sys.stderr)
        ours.append(lamina(args, model, batch, context))
        if gguf:
            theirs.append(llama_cpp(args, gguf, batch, context))
    median = lambda get: statistics.median(get(one) for one in ours)
    cluster = median(lambda one: one["value"])
    peer = statistics.median(theirs) if theirs else None
    print(f"| {weights} | {batch} | {context} | {cluster:.1f} | {median(lambda one: one['reference_value']):.1f} | {median(lambda one: one['ratio']):.2f} "
          f"| {median(lambda one: one['details']['share_of_limit']):.2f} | {f'{peer:.1f}' if peer else '-'} "
          f"| {f'{cluster / peer:.2f}' if peer else '-'} |", flush=True)


if __name__ == "__main__":
    main()
