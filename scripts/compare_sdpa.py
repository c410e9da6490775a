#!/usr/bin/env python3
"""Decode attention of lamina on a GPU, and PyTorch's scaled_dot_product_attention beside it on the same shapes.

  scripts/compare_sdpa.py --device cuda:0 --contexts 512,4096,65536

Both run in turn, --rounds times over, and medians are compared. lamina reads K and V through a table of token slots in random order; PyTorch's
K and V are contiguous, which is the easier task. PyTorch takes whichever of its backends is fastest for a shape. Needs PyTorch with CUDA.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import time

SAMPLE_SECONDS = 0.02  # as lamina's samples
ROOT = pathlib.Path(__file__).resolve().parent.parent


def lamina(args):
    """The cases of `lamina bench kernels`, as it prints them."""
    command = [args.lamina, "bench", "kernels", "--device", args.device, "--only", "attention", "--contexts", args.contexts, "--groups",
               args.groups, "--head-dims", args.head_dims, "--kv", args.kv, "--repeats", str(args.repeats), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit status {done.returncode}\n{done.stderr[-2000:]}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def sdpa(torch, case, device, repeats):
    """GB/s of K and V that PyTorch reads for the case: the best backend's median."""
    kv_heads, group, context, dim = case["kv_heads"], case["group"], case["context"], case["head_dim"]
    dtype = getattr(torch, case["kv"])  # lamina's names are PyTorch's
    make = lambda heads, tokens: torch.randn(case["sequences"], heads, tokens, dim, dtype=dtype, device=device)
    q, k, v = make(kv_heads * group, 1), make(kv_heads, context), make(kv_heads, context)
    size = 2 * k.numel() * k.element_size()
    best = 0.0
    backends = torch.nn.attention.SDPBackend
    for backend in (backends.FLASH_ATTENTION, backends.CUDNN_ATTENTION, backends.EFFICIENT_ATTENTION, backends.MATH):
        try:
            with torch.nn.attention.sdpa_kernel(backend):
                def seconds_of(times):
                    torch.cuda.synchronize(device)
                    start = time.perf_counter()
                    for _ in range(times):
                        torch.nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=group > 1)
                    torch.cuda.synchronize(device)
                    return (time.perf_counter() - start) / times

                seconds_of(1)  # warm-up
                times = max(1, min(1000, int(SAMPLE_SECONDS / seconds_of(1))))
                seconds = [seconds_of(times) for _ in range(repeats)]
        except RuntimeError:  # this backend does not take the shape
            continue
        best = max(best, size / statistics.median(seconds) / 1e9)
    return best


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--contexts", default="512,4096,65536")
    parser.add_argument("--groups", default="1,4,8")
    parser.add_argument("--head-dims", default="128")
    parser.add_argument("--kv", default="bf16")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=7, help="of each case in a round")
    parser.add_argument("--lamina", default=str(ROOT / "build/release/bin/lamina"))
    args = parser.parse_args()
    try:
        import torch
    except ImportError:
        sys.exit("compare_sdpa.py: PyTorch is not installed for " + sys.executable)
    if not torch.cuda.is_available():
        sys.exit("compare_sdpa.py: PyTorch finds no CUDA device")

    ours, theirs, cases = {}, {}, {}
    for number in range(args.rounds):
        print(f"round {number + 1} of {args.rounds}", file=sys.stderr)
        for line in lamina(args):
            key = json.dumps(line["case"], sort_keys=True)
            cases[key] = line
            ours.setdefault(key, []).append(line["value"])
            theirs.setdefault(key, []).append(sdpa(torch, line["case"], args.device, args.repeats))
    print("| KV | head_dim | group | context | sequences | lamina, GB/s | / copy on the device | PyTorch, GB/s | lamina / PyTorch |")
    print("|---|---|---|---|---|---|---|---|---|")
    for key, line in cases.items():
        case, mine, peer = line["case"], statistics.median(ours[key]), statistics.median(theirs[key])
        print(f"| {case['kv']} | {case['head_dim']} | {case['group']} | {case['context']} | {case['sequences']} | {mine:.0f} | {line['ratio']:.2f} "
              f"| {peer:.0f} | {mine / peer:.2f} |" if peer else f"| {key} | {mine:.0f} | no backend of PyTorch takes it |")


if __name__ == "__main__":
    main()
