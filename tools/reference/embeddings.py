#!/usr/bin/env python3
"""Embeddings of real sentences by a real checkpoint: plimsoll's against transformers'.

    embeddings.py [--checkpoint data/minilm] [--texts data/vader/validation.jsonl] [--rows 256] [--seed N]

transformers computes the mean of the last hidden states over real tokens for batches of sentences drawn with a fresh
seed; plimsoll's example `embeddings` reads the same weights and tokens and has to agree within 1e-5 of each embedding's
length. Exit code 1 if it does not.
"""
import argparse
import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import transformers
from safetensors.torch import save_file

ROOT = Path(__file__).resolve().parents[2]
BATCH, LENGTH = 32, 128


def embedded(model, tokens):
    hidden = model(**tokens).last_hidden_state
    mask = tokens["attention_mask"].unsqueeze(-1).to(hidden.dtype)
    return (hidden * mask).sum(1) / mask.sum(1)


def goldens(checkpoint, texts):
    tokenizer = transformers.AutoTokenizer.from_pretrained(checkpoint)
    model = transformers.AutoModel.from_pretrained(checkpoint, dtype=torch.float32).eval()
    tensors = {}
    for number, start in enumerate(range(0, len(texts), BATCH)):
        part = texts[start : start + BATCH]
        tokens = tokenizer(part, truncation=True, max_length=LENGTH, padding=True, return_tensors="pt")
        tokens.setdefault("token_type_ids", torch.zeros_like(tokens["input_ids"]))
        with torch.no_grad():
            tensors[f"{number}.embedding"] = embedded(model, tokens).contiguous()
        for ours, theirs in [("ids", "input_ids"), ("mask", "attention_mask"), ("types", "token_type_ids")]:
            tensors[f"{number}.{ours}"] = tokens[theirs].to(torch.int32).contiguous()
    return tensors


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoint", type=Path, default=ROOT / "data/minilm")
    parser.add_argument("--texts", type=Path, default=ROOT / "data/vader/validation.jsonl")
    parser.add_argument("--rows", type=int, default=256)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 24))
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}")
    texts = [json.loads(line)["text"] for line in open(arguments.texts, encoding="utf-8")]
    texts = random.Random(arguments.seed).sample(texts, min(arguments.rows, len(texts)))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "embeddings.safetensors"
        save_file(goldens(arguments.checkpoint, texts), file)
        command = ["cargo", "run", "--release", "-q", "-p", "plimsoll", "--example", "embeddings", "--"]
        sys.exit(subprocess.run([*command, str(arguments.checkpoint), str(file)], cwd=ROOT).returncode)


if __name__ == "__main__":
    main()
