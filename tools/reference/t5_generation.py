#!/usr/bin/env python3
"""Writes golden files of T5's generation: small models trained until their answers vary, and what transformers'
`generate` answers.

    t5_generation.py --out DIR

Entries: `param.NAME`, `sources` (N, S) padded with -1, and `CASE` (N, T) for each of the metadata's `cases`: answers
without the start, from the end token on filled with -1. A source is kept only if the f64 model gives the same answers:
where two candidates are equal to within rounding, neither is right.
"""
import argparse
import json
from pathlib import Path

import torch
from safetensors.torch import save_file

import t5

START, END = 0, 1
LONGEST = 9
MOST_NEW = 12
CASES = {
    "greedy": dict(num_beams=1),
    "beam3": dict(num_beams=3),
    "beam4": dict(num_beams=4),
    "beam4-early": dict(num_beams=4, early_stopping=True),
    "beam3-long": dict(num_beams=3, length_penalty=2.5),
    "beam3-short": dict(num_beams=3, length_penalty=-1.0),
}
MODELS = {
    "relu": dict(tie_word_embeddings=True, scale_decoder_outputs=True, feed_forward_proj="relu", num_layers=2, num_decoder_layers=2,
                 num_heads=3, d_kv=7),
    "gated-untied": dict(tie_word_embeddings=False, scale_decoder_outputs=False, feed_forward_proj="gated-gelu", num_layers=2,
                         num_decoder_layers=1, num_heads=2, d_kv=17),
}


def sizes_of(name):
    common = dict(family="t5", dropout_rate=0.0, vocab_size=22, d_model=20, d_ff=33,
                  relative_attention_num_buckets=8, relative_attention_max_distance=10)
    return common | MODELS[name]


def answer(source, vocab):
    """The task: backwards, every token through a permutation, even ones twice."""
    moved = [2 + (3 * token) % (vocab - 2) for token in reversed(source)]
    return [t for token in moved for t in ([token, token] if token % 2 == 0 else [token])][:MOST_NEW - 2]


def draw(rows, vocab):
    sources = [torch.randint(2, vocab, (int(torch.randint(1, LONGEST, ())),)).tolist() for _ in range(rows)]
    return [s + [END] for s in sources], [answer(s, vocab) + [END] for s in sources]


def padded(rows, fill, width=None):
    width = width or max(map(len, rows))
    return torch.tensor([row + [fill] * (width - len(row)) for row in rows])


def train(model, steps, vocab):
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(steps):
        sources, targets = draw(32, vocab)
        ids, labels = padded(sources, 0), padded(targets, -100)
        mask = torch.arange(ids.shape[1]) < torch.tensor([len(s) for s in sources])[:, None]
        loss = model(input_ids=ids, attention_mask=mask.long(), labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return float(loss.detach())


def generated(model, source, options):
    ids = torch.tensor([source])
    out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=MOST_NEW, do_sample=False, **options)
    tokens = out[0, 1:].tolist()
    return tokens[:tokens.index(END)] if END in tokens else tokens


def answers_of(model, sources):
    return {name: [generated(model, source, options) for source in sources] for name, options in CASES.items()}


def write(name, out, steps, count):
    sizes = sizes_of(name)
    model = t5.build(sizes)
    loss = train(model, steps, sizes["vocab_size"])
    model.eval()
    sources, _ = draw(count, sizes["vocab_size"])
    single = answers_of(model, sources)
    double = answers_of(model.double(), sources)
    kept = [i for i in range(count) if all(single[case][i] == double[case][i] for case in CASES)]
    entries = {f"param.{k}": p.detach().float() for k, p in model.named_parameters()}
    entries["sources"] = padded([sources[i] for i in kept], -1)
    entries |= {case: padded([rows[i] for i in kept], -1, MOST_NEW) for case, rows in single.items()}
    config = dict(model=sizes, cases=CASES, max_new_tokens=MOST_NEW, pytorch=torch.__version__)
    save_file({k: v.contiguous() for k, v in entries.items()}, out / f"{name}.safetensors", {"config": json.dumps(config)})
    differ = sum(single["greedy"][i] != single["beam4"][i] for i in kept)
    print(f"{name}: loss {loss:.3f}, {len(kept)} of {count} sources kept, beams and greedy differ on {differ}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--sources", type=int, default=30)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    arguments.out.mkdir(parents=True, exist_ok=True)
    for i, name in enumerate(MODELS):
        torch.manual_seed(arguments.seed * 1000 + i)
        write(name, arguments.out, arguments.steps, arguments.sources)


if __name__ == "__main__":
    main()
