#!/usr/bin/env python3
"""The same fine-tuning in PyTorch and in plimsoll: real MiniLM weights on the real sentences of tools/data/vader.

    sentences.py --plimsoll target/release/plimsoll [--rows 6000] [--seeds 1 2 3] [--only PEER] [--out FILE.jsonl]
                 [--precisions f32 tf32 bf16-mixed fp16-mixed bf16]

Both train once over the first ROWS sentences with the settings of sentences.toml beside it (AdamW without decay of biases and
norms, linear schedule with warm-up, clipping, dropout as the checkpoint says, batches of like length) and are scored on
the same held-out sentences. One JSON line per run, then the means. Seeds differ in the fresh head, in dropout and in the
order of sentences on both sides; the orders themselves are not the same. Lines are added to FILE, and the means are
those of all its lines, so that the two sides may run one after the other (--only), on different machines. Each
precision is a peer of its own; bf16 is pure: weights, moments and accumulators.
"""
import argparse
import json
import random
import subprocess
import tempfile
import time
from pathlib import Path

import torch
import transformers

ROOT = Path(__file__).resolve().parents[2]
BATCH, LR, WARMUP, CLIP, LENGTH = 32, 5e-5, 0.1, 1.0, 128


def read(path):
    rows = [json.loads(line) for line in open(path, encoding="utf-8")]
    return [(row["text"], int(row["label"] == "positive")) for row in rows]


def batches(rows, lengths, rng):
    """Shuffled, then like lengths together inside windows, then the batches shuffled."""
    order = list(range(len(rows)))
    rng.shuffle(order)
    cut = []
    for start in range(0, len(order), 64 * BATCH):
        window = sorted(order[start : start + 64 * BATCH], key=lambda i: lengths[i])
        parts = [window[i : i + BATCH] for i in range(0, len(window), BATCH)]
        rng.shuffle(parts)
        cut += parts
    return cut


def encode(tokenizer, texts):
    return tokenizer(texts, truncation=True, max_length=LENGTH, padding=True, return_tensors="pt")


def accuracy(model, tokenizer, rows):
    model.eval()
    right = 0
    with torch.no_grad():
        for i in range(0, len(rows), 64):
            part = sorted(rows[i : i + 64], key=lambda row: len(row[0]))
            logits = model(**encode(tokenizer, [text for text, _ in part]).to(model.device)).logits.cpu()
            right += (logits.argmax(-1) == torch.tensor([label for _, label in part])).sum().item()
    return right / len(rows)


def in_pytorch(checkpoint, train, held_out, seed):
    torch.manual_seed(seed)
    tokenizer = transformers.AutoTokenizer.from_pretrained(checkpoint)
    # Left alone, it would stay in the checkpoint's type: AdamW in plain f16 ends in NaN.
    model = transformers.AutoModelForSequenceClassification.from_pretrained(checkpoint, num_labels=2, dtype=torch.float32)
    model = model.to("cuda" if torch.cuda.is_available() else "cpu")
    decayed = lambda name: name.endswith("weight") and "LayerNorm" not in name
    groups = [
        dict(params=[p for n, p in model.named_parameters() if decayed(n)], weight_decay=0.01),
        dict(params=[p for n, p in model.named_parameters() if not decayed(n)], weight_decay=0.0),
    ]
    optimizer = torch.optim.AdamW(groups, lr=LR)
    lengths = [len(ids) for ids in tokenizer([text for text, _ in train])["input_ids"]]
    order = batches(train, lengths, random.Random(seed))
    schedule = transformers.get_linear_schedule_with_warmup(optimizer, round(WARMUP * len(order)), len(order))
    model.train()
    for part in order:
        inputs = encode(tokenizer, [train[i][0] for i in part]).to(model.device)
        labels = torch.tensor([train[i][1] for i in part], device=model.device)
        model(**inputs, labels=labels).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    return accuracy(model, tokenizer, held_out)


def in_plimsoll(binary, folder, seed, precision):
    sets = [f"data.train={folder}/train.jsonl", f"train.seed={seed}", f"memory.precision={precision}"]
    sets += ["memory.optimizer_state=bf16"] if precision == "bf16" else []
    out = f"{folder}/run-{precision}-{seed}"
    command = [binary, "train", ROOT / "tools/reference/sentences.toml", "--json", "--out", out]
    for key in sets:
        command += ["--set", key]
    answer = subprocess.run([str(part) for part in command], check=True, capture_output=True, text=True).stdout
    return json.loads(answer)["final"]["accuracy"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plimsoll", default=ROOT / "target/release/plimsoll", type=Path)
    parser.add_argument("--rows", type=int, default=6000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", choices=["plimsoll", "pytorch"])
    parser.add_argument("--precisions", nargs="+", default=["auto"], help="of plimsoll's runs; auto: the device's own")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    train = read(ROOT / "data/vader/train.jsonl")
    # Sentences of one source stand together in the file.
    random.Random(0).shuffle(train)
    train, held_out = train[: options.rows], read(ROOT / "data/vader/validation.jsonl")
    lines = [json.loads(line) for line in options.out.open()] if options.out and options.out.exists() else []
    lines = [line for line in lines if "peer" in line]
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/train.jsonl", "w", encoding="utf-8") as file:
            for text, label in train:
                file.write(json.dumps(dict(text=text, label=["negative", "positive"][label])) + "\n")
        for seed in options.seeds:
            for peer, precision in [("plimsoll", name) for name in options.precisions] + [("pytorch", "auto")]:
                if options.only not in (None, peer):
                    continue
                began = time.perf_counter()
                if peer == "pytorch":
                    score = in_pytorch(ROOT / "data/minilm", train, held_out, seed)
                else:
                    score = in_plimsoll(options.plimsoll, folder, seed, precision)
                peer = peer if precision == "auto" else f"{peer} {precision}"
                seconds = round(time.perf_counter() - began, 1)
                lines.append(dict(peer=peer, seed=seed, rows=len(train), accuracy=score, seconds=seconds))
                print(json.dumps(lines[-1]), flush=True)
    found = {line["peer"]: [] for line in lines}
    for line in lines:
        found[line["peer"]].append(line["accuracy"])
    means = {peer: sum(values) / len(values) for peer, values in found.items()}
    if "pytorch" in means and len(means) > 1:
        apart = {peer: round(100 * (mean - means["pytorch"]), 2) for peer, mean in means.items() if peer != "pytorch"}
        lines.append(dict(means=means, points_apart=apart))
        print(json.dumps(lines[-1]))
    if options.out:
        options.out.write_text("".join(json.dumps(line) + "\n" for line in lines))


if __name__ == "__main__":
    main()
