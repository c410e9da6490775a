#!/usr/bin/env python3
"""What this machine's processes add to the times of modelled devices, for `lamina simulate --host-costs`.

  lamina bench modelled configs/modelled-13b.yaml --batch 16 64 256 --json > measured.jsonl
  scripts/fit_host_costs.py measured.jsonl --layers 40 > host-costs.yaml

Takes cases with one batch in flight and no modelled network. Of each, `bench modelled` says what the manager, the compute node and the way
to the memory nodes and back added to a step; over the batch sizes each of these is taken for a constant and a part for each row.
"""
import argparse
import json
import sys


def line_through(points):
    """Constant and slope of the least relative squares, neither below zero."""
    weights = [1 / max(y, 1e-3) ** 2 for _, y in points]
    total = sum(weights)
    mean_x = sum(w * x for w, (x, _) in zip(weights, points)) / total
    mean_y = sum(w * y for w, (_, y) in zip(weights, points)) / total
    spread = sum(w * (x - mean_x) ** 2 for w, (x, _) in zip(weights, points))
    slope = sum(w * (x - mean_x) * (y - mean_y) for w, (x, y) in zip(weights, points)) / spread if spread else 0.0
    slope = max(slope, 0.0)
    constant = mean_y - slope * mean_x
    if constant < 0:
        constant, slope = 0.0, sum(w * x * y for w, (x, y) in zip(weights, points)) / sum(w * x * x for w, (x, _) in zip(weights, points))
    return constant, slope


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", help="lines of `lamina bench modelled --json`")
    parser.add_argument("--layers", type=int, required=True, help="of the model that was measured")
    args = parser.parse_args()
    parts = {"manager_ms": [], "compute_node_ms": [], "memory_nodes_ms": []}
    with open(args.file, encoding="utf-8") as lines:
        for line in lines:
            case = json.loads(line)
            if case["case"]["num_batches"] != 1 or "network_ms" in case["details"]:
                continue
            for name, points in parts.items():
                points.append((case["case"]["batch"], max(case["details"][name], 0.0)))
    if not parts["manager_ms"]:
        sys.exit(f"{args.file}: no case with one batch in flight and without a modelled network")
    step, row = line_through(parts["manager_ms"])
    layer, layer_row = line_through(parts["compute_node_ms"])
    wire, wire_row = line_through(parts["memory_nodes_ms"])
    print(f"step_us: {1e3 * step:.1f}")
    print(f"row_us: {1e3 * row:.3f}")
    print(f"layer_us: {1e3 * layer / args.layers:.2f}")
    print(f"layer_row_us: {1e3 * (layer_row + wire_row) / args.layers:.4f}")
    print(f"message_us: {1e3 * wire / args.layers / 2:.2f}")


if __name__ == "__main__":
    main()
