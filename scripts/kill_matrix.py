#!/usr/bin/env python3
"""Every loss in every scenario: each memory node, each compute node, the only one (without and with a standby) and the manager is killed,
stopped for ever and stopped for 3 s, over every transport, as 32 streams run. Each run passes if no request fails and all get the tokens and
log-probabilities of an undisturbed one.

  kill_matrix.py [--jobs N] [--only TEXT] [--program FILE]
    --jobs N         so many runs at a time, 2 unless told; each is a cluster of up to seven processes
    --only TEXT      runs whose name contains this, such as ranks_tcp or WithStandby
    --program FILE   build/release/bin/test_e2e unless told

About 740 runs of some five seconds. The tests of tests/e2e draw some of them (tests/e2e/recovery_run.h); this makes all.
Exit status: 0 if every run passed.
Example:
  scripts/kill_matrix.py --only stages
"""
import argparse
import collections
import concurrent.futures
import os
import re
import subprocess
import sys
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ENVIRONMENT = {**os.environ, "LAMINA_KILL_MATRIX": "full"}
NAME = re.compile(r"Losses/(\w+)\.\w+/(\w+?)_(shm|tcp|ucx)_\w+")


def names_of(program, only):
    """All runs by the names that gtest has for them."""
    listed = subprocess.run([program, "--gtest_list_tests", "--gtest_filter=Losses/*"], env=ENVIRONMENT, capture_output=True, text=True, check=True)
    suite, names = "", []
    for line in listed.stdout.splitlines():
        if not line.startswith(" "):
            suite = line.strip()
        elif only in suite + line.strip():
            names.append(suite + line.split("#")[0].strip())
    return names


def cell_of(name):
    """Its row and column in the table."""
    suite, scenario, _ = NAME.fullmatch(name).groups()
    plain = scenario.removesuffix("_two_compute_nodes")
    if suite == "ComputeNodes":
        alone = plain == scenario and scenario not in ("rotational", "stages", "ranks")
        return plain, "the only compute node" if alone else "one of two compute nodes"
    return plain, {"MemoryNodes": "a memory node", "WithStandby": "with a standby", "Managers": "the manager"}[suite]


def run(program, name, report):
    started = time.monotonic()
    done = subprocess.run([program, "--gtest_filter=" + name], env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          errors="replace")
    passed = done.returncode == 0 and "[  PASSED  ] 1 test." in done.stdout
    report(name, passed, time.monotonic() - started, done.stdout)
    return passed


def table(results):
    columns = ["a memory node", "one of two compute nodes", "the only compute node", "with a standby", "the manager"]
    counts = collections.defaultdict(lambda: [0, 0])
    for name, passed in results.items():
        counts[cell_of(name)][0] += passed
        counts[cell_of(name)][1] += 1
    rows = list(dict.fromkeys(cell_of(name)[0] for name in results))
    lines = ["| scenario | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
    for row in rows:
        cells = ["{} of {}".format(*counts[row, column]) if (row, column) in counts else "" for column in columns]
        lines.append("| " + " | ".join([row.replace("_", " "), *cells]) + " |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", default="")
    parser.add_argument("--program", default=os.path.join(ROOT, "build/release/bin/test_e2e"))
    options = parser.parse_args()
    if not os.access(options.program, os.X_OK):
        sys.exit(f"kill_matrix.py: {options.program} is not there: build it with `cmake --preset release && ninja -C build/release`")
    names = names_of(options.program, options.only)
    if not names:
        sys.exit(f"kill_matrix.py: no run's name contains '{options.only}'")

    started, lock, results, output = time.monotonic(), threading.Lock(), {}, {}

    def report(name, passed, seconds, text):
        with lock:
            results[name] = passed
            if not passed:
                output[name] = text
            print(f"{len(results)} of {len(names)}, {time.monotonic() - started:.0f} s: {'passed' if passed else 'FAILED'} {name} ({seconds:.1f} s)",
                  flush=True)

    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(lambda name: run(options.program, name, report), names))
    for name, text in output.items():
        print(f"\n--- {name}\n{text}")
    print("\n" + table({name: results[name] for name in names}))
    print(f"\n{sum(results.values())} of {len(names)} runs passed in {time.monotonic() - started:.0f} s")
    sys.exit(0 if all(results.values()) else 1)


if __name__ == "__main__":
    main()
