#!/usr/bin/env python3
"""Speed of two builds of lamina side by side: each case is run with the one and the other in turn, and the medians are compared.

  compare_builds.py OLD NEW [--pairs N] [--only TEXT]
    OLD, NEW      folders with the programs, such as build/release/bin of two checkouts
    --pairs N     runs of each build and case, 5 unless told
    --only TEXT   cases whose name contains this

A ratio above 1 means that NEW is faster; the spread is that of the ratios of single pairs. Each build runs the model and cluster files
of the checkout that it lies in, or this one's if it lies in none. Keep the machine idle.
Example:
  scripts/compare_builds.py ../before/build/release/bin build/release/bin --only throughput
"""
import argparse
import json
import os
import statistics
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TINY = ["models/tiny-stories", "--input-len", "64", "--output-len", "128"]
LARGE = ["configs/models/llama-1.1b", "--load-format", "dummy", "--kv-dtype", "bfloat16", "--decode-only", "--input-len", "128", "--output-len", "16"]


def throughput(model, batch, prompts):
    return ["bench", "throughput", *model, "--num-prompts", str(prompts), "--max-num-seqs", str(batch), "--repeats", "1", "--json"]


def simulate(requests):
    return ["simulate", "configs/modelled-13b.yaml", "--num-prompts", str(requests), "--random-input-len", "200", "--random-output-len", "50",
            "--max-concurrency", "512", "--json"]


def rates(lines):
    """The cases that one run of a benchmark has printed, by what tells them apart within the run."""
    for line in lines:
        case = line.get("case", {})
        # Latencies get smaller as they get better.
        inverse = line.get("unit") in ("us", "ms", "s")
        suffix = "".join(f" {key} {case[key]}" for key in ("fabric", "bytes") if key in case and line["name"].startswith("transport"))
        yield line["name"] + suffix, 1 / line["value"] if inverse else line["value"]


def simulation_rate(lines):
    yield "simulate, requests", lines[-1]["completed"] / lines[-1]["simulation_seconds"]


CASES = [
    ("throughput of tiny-stories, batch 1", throughput(TINY, 1, 40), rates),
    ("throughput of tiny-stories, batch 32", throughput(TINY, 32, 256), rates),
    ("throughput of the 1.1B shape, batch 1", throughput(LARGE, 1, 1), rates),
    ("throughput of the 1.1B shape, batch 8", throughput(LARGE, 8, 8), rates),
    ("throughput of the 1.1B shape, batch 32", throughput(LARGE, 32, 32), rates),
    ("modelled 13B, batch 32", ["bench", "modelled", "configs/modelled-13b.yaml", "--batch", "32", "--json"], rates),
    ("transport", ["bench", "transport", "--fabric", "shm,tcp", "--min-bytes", "64", "--max-bytes", "1MiB", "--repeats", "1", "--json"], rates),
    ("simulator", simulate(100000), simulation_rate),
]


def checkout_of(programs):
    """The folder above build/PRESET/bin, if it has the files that the cases name."""
    folder = os.path.abspath(os.path.join(programs, *[os.pardir] * 3))
    return folder if os.path.exists(os.path.join(folder, "configs/modelled-13b.yaml")) else ROOT


def run(programs, arguments, read):
    environment = dict(os.environ, PATH=programs + os.pathsep + os.environ["PATH"])
    done = subprocess.run([os.path.join(programs, "lamina"), *arguments], cwd=checkout_of(programs), env=environment, capture_output=True, text=True)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode != 0 or not lines:
        sys.exit(f"{programs}/lamina {' '.join(arguments)} exited with {done.returncode}:\n{done.stderr}{done.stdout}")
    return dict(read(lines))


def compare(name, before, after):
    for key in before[0]:
        old, new = [of[key] for of in before], [of[key] for of in after]
        single = sorted(n / o for n, o in zip(new, old))
        ratio = statistics.median(new) / statistics.median(old)
        label = name if len(before[0]) == 1 else f"{name}: {key}"
        print(f"{label:<60} {statistics.median(old):>12.4g} {statistics.median(new):>12.4g} {ratio:>7.3f}   {single[0]:.3f} to {single[-1]:.3f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    builds = [os.path.abspath(options.old), os.path.abspath(options.new)]
    for programs in builds:
        if not os.access(os.path.join(programs, "lamina"), os.X_OK):
            parser.error(f"there is no program lamina in {programs}")
    print(f"{'case':<60} {'old':>12} {'new':>12} {'ratio':>7}   single pairs")
    for name, arguments, read in CASES:
        if options.only not in name:
            continue
        results = ([], [])
        for pair in range(options.pairs):
            # Which goes first alternates, so that a machine that gets slower favours neither.
            for which in (0, 1) if pair % 2 == 0 else (1, 0):
                results[which].append(run(builds[which], arguments, read))
                print(f"{name}: pair {pair + 1} of {options.pairs}", end="\r", file=sys.stderr)
        compare(name, *results)


if __name__ == "__main__":
    main()
