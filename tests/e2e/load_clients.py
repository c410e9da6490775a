"""Measures a running lamina server with the load generators that others wrote, as their users do: NVIDIA's `aiperf`, `guidellm`, and `vllm bench serve`,
those of them that are installed beside this Python. They read the tokenizer of models/tiny-stories with transformers and count tokens themselves.

Usage: load_clients.py [URL]      (pip install aiperf, or guidellm, or vllm; each in a venv of its own; a server of models/tiny-stories)
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
from importlib.metadata import version

url = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8000"
model = str((pathlib.Path(__file__).parents[2] / "models/tiny-stories").resolve())
programs = pathlib.Path(sys.executable).parent
REQUESTS, INPUT, OUTPUT = 20, 100, 24


def run(folder, *command):
    done = subprocess.run([programs / command[0], *command[1:]], cwd=folder, capture_output=True, text=True, timeout=240,
                          env={**os.environ, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}", "NO_COLOR": "1"})
    assert done.returncode == 0, f"{' '.join(command)}: exit status {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"


def check_aiperf(folder):
    for kind in ("chat", "completions"):
        run(folder, "aiperf", "profile", "--model", "tiny-stories", "--tokenizer", model, "--url", url, "--endpoint-type", kind, "--streaming",
            "--request-count", str(REQUESTS), "--concurrency", "4", "--synthetic-input-tokens-mean", str(INPUT), "--output-tokens-mean", str(OUTPUT),
            "--extra-inputs", "ignore_eos:true", "--random-seed", "7", "--output-artifact-dir", kind, "--ui", "none")
        told = json.loads(pathlib.Path(folder, kind, "profile_export_aiperf.json").read_text())
        assert told["request_count"]["avg"] == REQUESTS and not told["error_summary"], told["error_summary"]
        assert told["total_usage_completion_tokens"]["avg"] == REQUESTS * OUTPUT, told["total_usage_completion_tokens"]
        # Its own count of the prompts, without the token that begins each.
        assert told["usage_prompt_tokens"]["avg"] == told["input_sequence_length"]["avg"] + 1, told["usage_prompt_tokens"]
        assert told["time_to_first_token"]["avg"] > 0 and told["inter_token_latency"]["avg"] > 0


def check_guidellm(folder):
    for path in ("/v1/chat/completions", "/v1/completions"):
        run(folder, "guidellm", "run", "--backend", f"kind=openai_http,target={url},model=tiny-stories,request_format={path}",
            "--profile", "kind=concurrent,streams=4", "--constraint", f"kind=max_requests,count={REQUESTS}",
            "--tokenizer", f"kind=huggingface_auto,model={model}", "--data", f"kind=synthetic_text,prompt_tokens={INPUT},output_tokens={OUTPUT}",
            "--output", "kind=json,path=out.json", "--disable-console")
        told = json.loads(pathlib.Path(folder, "out.json").read_text())["benchmarks"][0]
        totals = told["metrics"]["request_totals"]
        assert totals == {"successful": REQUESTS, "errored": 0, "incomplete": 0, "total": REQUESTS}, totals
        for request in told["requests"]["successful"]:
            assert (request["output_tokens"], request["prompt_tokens"]) == (OUTPUT, INPUT), request
            assert request["time_to_first_token_ms"] > 0 and request["inter_token_latency_ms"] > 0 and request["output"], request


def check_vllm(folder):
    for backend, endpoint in (("openai", "/v1/completions"), ("openai-chat", "/v1/chat/completions")):
        run(folder, "vllm", "bench", "serve", "--backend", backend, "--base-url", url, "--endpoint", endpoint, "--model", "tiny-stories",
            "--tokenizer", model, "--dataset-name", "random", "--random-input-len", str(INPUT), "--random-output-len", str(OUTPUT), "--ignore-eos",
            "--num-prompts", str(REQUESTS), "--max-concurrency", "4", "--seed", "7", "--save-result", "--result-filename", "out.json")
        told = json.loads(pathlib.Path(folder, "out.json").read_text())
        assert told["completed"] == REQUESTS and told["failed"] == 0, told
        assert told["total_output_tokens"] == REQUESTS * OUTPUT and told["mean_ttft_ms"] > 0 and told["mean_tpot_ms"] > 0, told


found = [(name, check) for name, check in (("aiperf", check_aiperf), ("guidellm", check_guidellm), ("vllm", check_vllm)) if (programs / name).exists()]
assert found, f"neither aiperf nor guidellm nor vllm is in {programs}"
for name, check in found:
    with tempfile.TemporaryDirectory() as folder:
        check(folder)
    print(f"{name} {version(name)}: {REQUESTS} requests to chats and as many to completions, ok")
