#!/usr/bin/env python3
"""What this machine's processes add to the times of modelled devices, for `lamina simulate --host-costs`.

  for cluster in one.yaml two.yaml; do
    lamina bench modelled $cluster --batch 16 48 96 192 --json
    lamina bench modelled $cluster --batch 48 144 --num-batches 3 --json
    lamina bench modelled $cluster --batch 16 --latency 100us --gb-per-s 24 --overlap off --json
  done > measured.jsonl
  scripts/fit_host_costs.py measured.jsonl --layers 40 > host-costs.yaml

Needs cases with one batch in flight and with several of which the compute node is the bottleneck. Clusters with different numbers of memory
nodes tell posts from the rest of a layer, and a modelled network slower than this machine's tells attention from messages; few rows there,
so that bytes, which overlap with other work, hardly count. Of repeated cases the median counts.

Of a step, what the manager adds is measured by itself. The rest, by layer, is
  one batch in flight:      layer + layer_row x rows + post x nodes + attend + attend_row x rows / nodes + 2 message (without a network)
  compute node never idle:  layer + layer_row x rows + post x nodes
and the costs are the non-negative ones whose steps are nearest to the measured ones, by relative least squares.
"""
import argparse
import json
import statistics
import sys

NAMES = ("layer_us", "layer_row_us", "post_us", "attend_us", "attend_row_us", "message_us")
SIZES = ("batch", "num_batches", "num_memory_nodes")
DETAILS = ("step_ms", "ideal_linear_ms", "ideal_attention_ms", "manager_ms")


def least_squares(rows):
    """Non-negative x nearest to a x = y over [(a, y, weight)], by descent along one coordinate after another."""
    size = len(rows[0][0])
    square = [[sum(w * a[i] * a[j] for a, _, w in rows) for j in range(size)] for i in range(size)]
    aim = [sum(w * a[i] * y for a, y, w in rows) for i in range(size)]
    x = [0.0] * size
    for _ in range(20000):
        for i in range(size):
            if square[i][i] > 0:
                x[i] = max(0.0, x[i] + (aim[i] - sum(p * q for p, q in zip(square[i], x))) / square[i][i])
    return x


def medians(cases):
    """One case for all that were measured alike, with the medians of their details."""
    alike = {}
    for case in cases:
        alike.setdefault(json.dumps(case["case"], sort_keys=True) + str("network_ms" in case["details"]), []).append(case)
    merged = []
    for group in alike.values():
        names = [name for name in DETAILS + ("network_ms",) if name in group[0]["details"]]
        details = {name: statistics.median(c["details"][name] for c in group) for name in names}
        merged.append({"case": group[0]["case"], "details": details})
    return merged


def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e12


def what_is_wrong(case):
    """With a measurement: a few words, None if nothing is."""
    if not isinstance(case, dict):
        return "this is no JSON object"
    for part, names in (("case", SIZES), ("details", DETAILS)):
        if not isinstance(case.get(part), dict):
            return f"there is no object '{part}'"
        for name in names:
            if not is_number(case[part].get(name)):
                return f"'{name}' of '{part}' must be a number"
    if min(case["case"][name] for name in SIZES) < 1 or case["details"]["step_ms"] <= 0:
        return "batch, num_batches, num_memory_nodes must be 1 or more, and step_ms above 0"
    if not is_number(case["details"].get("network_ms", 0)):
        return "'network_ms' of 'details' must be a number"
    return None


def read(path):
    """The measurements of a file. Leaves with a sentence if there is anything else in it."""
    cases = []
    try:
        with open(path, encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                if not line.strip():
                    continue
                try:
                    case = json.loads(line)
                except (ValueError, RecursionError) as error:
                    sys.exit(f"{path}:{number}: this is not JSON: {error}")
                if wrong := what_is_wrong(case):
                    sys.exit(f"{path}:{number}: {wrong}; expected a line of `lamina bench modelled --json`")
                cases.append(case)
    except (OSError, UnicodeDecodeError) as error:
        sys.exit(f"{path}: cannot be read: {error}")
    return cases


def fit(cases, layers):
    steps, pieces = [], []
    for case in medians(cases):
        sizes, ms = case["case"], case["details"]
        if sizes.get("overlap") == "on":
            continue
        batches, nodes = sizes["num_batches"], sizes["num_memory_nodes"]
        rows = sizes["batch"] / batches
        weight = (layers * 1e-3 / ms["step_ms"]) ** 2
        at_compute = [1, rows, nodes]
        if batches == 1:
            steps.append(([1, rows], 1e3 * max(ms["manager_ms"], 0), 1 / max(ms["manager_ms"], 0.05) ** 2))
            network = ms.get("network_ms", 0)
            added = ms["step_ms"] - ms["ideal_linear_ms"] - ms["ideal_attention_ms"] - network - max(ms["manager_ms"], 0)
            pieces.append((at_compute + [1, rows / nodes, 0 if network else 2], 1e3 * added / layers, weight))
        elif batches * ms["ideal_linear_ms"] > 1.5 * (ms["ideal_linear_ms"] + ms["ideal_attention_ms"]):
            added = ms["step_ms"] / batches - ms["ideal_linear_ms"]
            pieces.append((at_compute + [0, 0, 0], 1e3 * added / layers, weight * batches**2))
    if not steps or len(steps) == len(pieces):
        sys.exit("there must be cases with one batch in flight, and with several of which the compute node is the bottleneck")
    return dict(zip(("step_us", "row_us"), least_squares(steps))) | dict(zip(NAMES, least_squares(pieces)))


def self_check():
    """Finds the costs that made-up cases were made of."""
    true = {"step_us": 400, "row_us": 2.5, "layer_us": 12, "layer_row_us": 0.05, "post_us": 9, "attend_us": 21, "attend_row_us": 0.2,
            "message_us": 7}
    layers, cases = 40, []
    for nodes in (1, 2, 4):
        for batches, network in ((1, 0.0), (1, 9.0), (3, 0.0)):
            for rows in (16, 64, 192):
                linear, attention = 20 + 0.1 * rows, 0.02 * rows / nodes
                compute = layers * (true["layer_us"] + true["layer_row_us"] * rows + true["post_us"] * nodes) / 1e3
                memory = true["attend_us"] + true["attend_row_us"] * rows / nodes + (0 if network else 2 * true["message_us"])
                manager = (true["step_us"] + true["row_us"] * rows) / 1e3
                step = batches * (linear + compute) if batches > 1 else linear + attention + compute + layers * memory / 1e3 + manager + network
                details = {"step_ms": step, "ideal_linear_ms": linear, "ideal_attention_ms": attention, "manager_ms": manager}
                if network:
                    details["network_ms"] = network
                sizes = {"batch": rows * batches, "num_batches": batches, "num_memory_nodes": nodes}
                cases += [{"case": sizes, "details": details}] * 2
                cases.append({"case": sizes, "details": details | {"step_ms": 2 * step}})  # disturbed
    found = fit(cases, layers)
    wrong = {name: found[name] for name, value in true.items() if abs(found[name] - value) > 0.01 * value + 0.01}
    if wrong:
        sys.exit(f"self-check: {wrong} instead of {true}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", help="lines of `lamina bench modelled --json`")
    parser.add_argument("--layers", type=int, help="of the model that was measured")
    parser.add_argument("--self-check", action="store_true", help="find known costs in made-up measurements, and print nothing else")
    args = parser.parse_args()
    if args.self_check:
        return self_check()
    if not args.files or args.layers is None:
        parser.error("needs a file of measurements and --layers")
    if args.layers < 1:
        parser.error(f"--layers {args.layers}: a model has one or more")
    cases = [case for path in args.files for case in read(path)]
    for name, value in fit(cases, args.layers).items():
        print(f"{name}: {value:.3f}")


if __name__ == "__main__":
    main()
