"""Has lm-evaluation-harness choose between what a held-out story goes on with and the same words backwards, by how likely a running lamina server says
they are.

Usage: lm_eval_client.py [URL]      (pip install "lm-eval[api]" transformers; a server of models/tiny-stories)
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

url = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8000"
model = pathlib.Path(__file__).parents[2] / "models/tiny-stories"
TASK = """task: lamina_stories
dataset_path: json
dataset_kwargs: {data_files: {test: DATA}}
output_type: multiple_choice
test_split: test
doc_to_text: "{{context}}"
doc_to_choice: choices
doc_to_target: label
target_delimiter: ""
metric_list: [{metric: acc, aggregation: mean, higher_is_better: true}]
metadata: {version: 1.0}
"""

with tempfile.TemporaryDirectory() as folder:
    rows = []
    for number, story in enumerate((model / "held_out.txt").read_text().splitlines()[:8]):
        words = story.split()
        choices = [" " + " ".join(words[12:20]), " " + " ".join(reversed(words[12:20]))]
        right = number % 2
        rows.append({"context": " ".join(words[:12]), "choices": choices[::-1] if right else choices, "label": right})
    data = pathlib.Path(folder, "data.jsonl")
    data.write_text("\n".join(json.dumps(row) for row in rows))
    pathlib.Path(folder, "lamina_stories.yaml").write_text(TASK.replace("DATA", str(data)))
    arguments = f"model=tiny-stories,base_url={url}/v1/completions,tokenizer={model},num_concurrent=2,max_length=1024"
    command = ["lm_eval", "--model", "local-completions", "--model_args", arguments, "--tasks", "lamina_stories", "--include_path", folder,
               "--output_path", folder + "/results"]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1",
                   "PATH": str(pathlib.Path(sys.executable).parent) + os.pathsep + os.environ["PATH"]}
    subprocess.run(command, env=environment, check=True, timeout=180, stdout=subprocess.DEVNULL)
    results = json.loads(next(pathlib.Path(folder, "results").rglob("results*.json")).read_text())
    accuracy = results["results"]["lamina_stories"]["acc,none"]
    assert accuracy == 1.0, accuracy
    print(f"lm-eval {results['lm_eval_version']}: {len(rows)} of {len(rows)} stories go on as they did")
