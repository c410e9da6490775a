#!/usr/bin/env python3
"""Writes beam_search_golden.json: what beam search of Hugging Face transformers answers with models/tiny-stories.

  python3 tests/api/beam_search_golden.py      needs torch and transformers 4.51
"""

import json
import pathlib

import torch
import transformers

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
MODEL = ROOT / "models" / "tiny-stories"
NUM_PROMPTS = 3
CASES = [  # width, length_penalty, early_stopping, max_new_tokens
    (2, 1.0, False, 24), (3, 1.0, False, 24), (4, 1.0, False, 24), (5, 1.0, False, 24),
    (3, 0.0, False, 24), (3, 2.0, True, 24), (4, 1.0, True, 60), (5, 1.0, False, 90), (2, -1.0, False, 60),
]


def main():
    model = transformers.LlamaForCausalLM.from_pretrained(MODEL, torch_dtype=torch.float32).eval()
    prompts = json.loads((MODEL / "golden.json").read_text())["prompts"]
    prompts = sorted(prompts, key=lambda one: len(one["prompt_ids"]))[1 : 1 + 4 * NUM_PROMPTS : 4]
    eos = model.generation_config.eos_token_id
    cases = []
    for width, length_penalty, early_stopping, max_new_tokens in CASES:
        for prompt in prompts:
            ids = torch.tensor([prompt["prompt_ids"]])
            with torch.no_grad():
                out = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, temperature=None, top_p=None, top_k=None,
                                     repetition_penalty=1.0, num_beams=width, num_return_sequences=width, length_penalty=length_penalty,
                                     early_stopping=early_stopping, max_new_tokens=max_new_tokens, pad_token_id=-1,
                                     return_dict_in_generate=True, output_scores=True)
            answers = []
            for sequence, score in zip(out.sequences.tolist(), out.sequences_scores.tolist()):
                tokens = [token for token in sequence[len(prompt["prompt_ids"]):] if token >= 0]
                ends = [at for at, token in enumerate(tokens) if token == eos]
                answers.append({"tokens": tokens[: ends[0] + 1] if ends else tokens, "score": round(score, 6)})
            cases.append({"prompt_ids": prompt["prompt_ids"], "width": width, "length_penalty": length_penalty,
                          "early_stopping": early_stopping, "max_new_tokens": max_new_tokens, "answers": answers})
    path = pathlib.Path(__file__).with_suffix(".json")
    path.write_text(json.dumps({"note": f"made by {pathlib.Path(__file__).name} with transformers {transformers.__version__}, fp32",
                                "cases": cases}, separators=(",", ":")).replace('{"prompt_ids"', '\n{"prompt_ids"') + "\n")


if __name__ == "__main__":
    main()
