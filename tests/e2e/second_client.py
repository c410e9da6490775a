"""Measures a running OpenAI-compatible server with the standard library's asyncio: a second opinion on `lamina bench serve`.

Usage: second_client.py BASE_URL NUM RATE INPUT_TOKENS OUTPUT_TOKENS [SEED [API_KEY]]

Sends NUM completions of random token ids at a constant RATE in requests per second, each over a connection of its own, and prints TTFT, TPOT
and throughput as JSON. The same load from lamina:

  lamina bench serve --base-url URL --num-prompts NUM --request-rate RATE --burstiness inf --prompt-format ids --ignore-eos \\
      --random-input-len INPUT_TOKENS --random-output-len OUTPUT_TOKENS
"""
import asyncio
import json
import random
import statistics
import sys
import time
import urllib.parse


KEY = f"Authorization: Bearer {sys.argv[7]}\r\n" if len(sys.argv) > 7 else ""


async def ask(host, port, at, body, start, results):
    await asyncio.sleep(max(0, start + at - time.perf_counter()))
    payload = json.dumps(body).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {len(payload)}\r\n{KEY}\r\n"
    sent = time.perf_counter()
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(head.encode() + payload)
    status = await reader.readline()
    assert b" 200 " in status, status + await reader.read()
    first = last = usage = None
    async for line in reader:
        now = time.perf_counter()
        if not line.startswith(b"data: {"):
            continue
        event = json.loads(line[6:])
        assert "error" not in event, event
        usage = event.get("usage") or usage
        if event["choices"]:
            first = first or now
            last = now
    writer.close()
    tokens = usage["completion_tokens"]
    results.append({"ttft": first - sent, "tpot": (last - first) / (tokens - 1) if tokens > 1 else None, "tokens": tokens,
                    "prompt": usage["prompt_tokens"], "end": time.perf_counter()})


async def main():
    url = urllib.parse.urlsplit(sys.argv[1])
    num, rate, inputs, outputs = int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5])
    rng = random.Random(int(sys.argv[6]) if len(sys.argv) > 6 else 0)
    requests = []
    for i in range(num):
        body = {"prompt": [rng.randrange(300, 900) for _ in range(inputs)], "max_tokens": outputs, "temperature": 0, "ignore_eos": True,
                "stream": True, "stream_options": {"include_usage": True}}
        requests.append({"at": (i + 1) / rate, "body": body})
    results, start = [], time.perf_counter()
    await asyncio.gather(*(ask(url.hostname, url.port, r["at"], r["body"], start, results) for r in requests))
    duration = max(r["end"] for r in results) - start
    tpots = [r["tpot"] for r in results if r["tpot"] is not None]
    print(json.dumps({
        "completed": len(results), "duration": duration,
        "total_input_tokens": sum(r["prompt"] for r in results), "total_output_tokens": sum(r["tokens"] for r in results),
        "mean_ttft_ms": 1e3 * statistics.mean(r["ttft"] for r in results),
        "median_ttft_ms": 1e3 * statistics.median(r["ttft"] for r in results),
        "mean_tpot_ms": 1e3 * statistics.mean(tpots) if tpots else None,
        "median_tpot_ms": 1e3 * statistics.median(tpots) if tpots else None,
        "output_throughput": sum(r["tokens"] for r in results) / duration,
    }))


asyncio.run(main())
