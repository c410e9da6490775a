#!/usr/bin/env python3
"""Draws some layers of one step of a trace (`--trace-out`, docs/tracing.md) as SVG.

  trace_svg.py TRACE.json [--step N] [--layers 0:4] > picture.svg

Without --step: the first step that has attention on a memory node, behind the third."""
import argparse
import html
import json
import sys

COLOURS = {"slice": "#4e79a7", "post": "#76b7b2", "take": "#b07aa1", "sample": "#9c755f", "q wire": "#f28e2b", "queue": "#edc948",
           "attention": "#59a14f", "output wire": "#e15759", "bubble": "#e4e4e4"}
WIDTH, LEFT, HEIGHT, GAP = 1000, 170, 20, 8  # pixels


def rows_of(events, begin, end):
    """[(label, events)] of all tracks that have something between begin and end, nodes in their order."""
    nodes = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    tracks = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    rows = []
    for (pid, tid), name in sorted(tracks.items()):
        here = [e for e in events if e["ph"] == "X" and (e["pid"], e["tid"]) == (pid, tid) and e["cat"] in COLOURS and
                e["ts"] < end and e["ts"] + e["dur"] > begin]
        if here:
            rows.append((f"{nodes[pid].split()[-1] if '(' not in nodes[pid] else nodes[pid].split(' (')[0].split()[-1]}: {name}", here))
    return rows


def box(event, y, x_of, begin, end):
    left, right = x_of(max(begin, event["ts"])), x_of(min(end, event["ts"] + event["dur"]))
    title = html.escape(f"{event['name']}, {event['dur']:.1f} us, step {event['args']['step']}, batch {event['args']['batch']}")
    out = f'<rect x="{left:.1f}" y="{y}" width="{max(right - left, 0.4):.1f}" height="{HEIGHT}" fill="{COLOURS[event["cat"]]}">'
    out += f"<title>{title}</title></rect>"
    label = str(event["args"]["layer"]) if event["cat"] in ("slice", "attention") else ""
    if label and right - left > 9 * len(label):
        out += f'<text x="{(left + right) / 2:.1f}" y="{y + 14}" fill="#fff" text-anchor="middle">{label}</text>'
    return out


def draw(events, begin, end):
    rows = rows_of(events, begin, end)
    x_of = lambda at: LEFT + (at - begin) / (end - begin) * (WIDTH - LEFT - 10)
    height = len(rows) * (HEIGHT + GAP) + 60
    yield f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="12">'
    yield f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>'
    for i, (label, here) in enumerate(rows):
        y = 8 + i * (HEIGHT + GAP)
        yield f'<text x="{LEFT - 8}" y="{y + 14}" text-anchor="end">{html.escape(label)}</text>'
        yield from (box(event, y, x_of, begin, end) for event in here)
    y = height - 44
    yield f'<text x="{LEFT}" y="{y}">0</text><text x="{WIDTH - 10}" y="{y}" text-anchor="end">{(end - begin) / 1000:.2f} ms</text>'
    for i, (kind, colour) in enumerate(COLOURS.items()):
        x = 10 + i * 108
        yield f'<rect x="{x}" y="{height - 28}" width="14" height="14" fill="{colour}"/><text x="{x + 20}" y="{height - 16}">{kind}</text>'
    yield "</svg>"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace")
    parser.add_argument("--step", type=int)
    parser.add_argument("--layers", default="0:4", help="first:last")
    options = parser.parse_args()
    with open(options.trace) as file:
        events = json.load(file)
    step = options.step
    if step is None:
        steps = sorted({e["args"]["step"] for e in events if e["ph"] == "X" and e["cat"] == "attention"})
        step = steps[min(3, len(steps) - 1)] if steps else 1
    first, last = map(int, options.layers.split(":"))
    slices = [e for e in events if e["ph"] == "X" and e["cat"] == "slice" and e["args"]["step"] == step and
              first <= e["args"]["layer"] <= last]
    if not slices:
        sys.exit(f"trace_svg.py: {options.trace} has no slice {first} to {last} of step {step}")
    for line in draw(events, min(e["ts"] for e in slices), max(e["ts"] + e["dur"] for e in slices)):
        print(line)


if __name__ == "__main__":
    main()
