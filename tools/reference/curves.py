#!/usr/bin/env python3
"""Writes a golden training curve: fifty AdamW losses of a small mu-sota, in f64 and in f32.

    curves.py --out DIR --seed 1

Plans of one recipe may differ by the order of sums only. How far that may take a curve is what PyTorch's own
f32 runs show: the rows in their order, and rotated.
"""
import argparse
import json
from pathlib import Path

import torch
from safetensors.torch import save_file

import configs
import golden

STEPS = 50
LR = 1e-3


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # one summation order
    torch.manual_seed(arguments.seed)
    golden.STEPS, golden.OPTIMIZER["lr"] = STEPS, LR
    sizes = dict(vocab=31, layers=3, blocks=4, block_width=4, block_heads=2, cross_heads=4, ffn=24, max_length=12)
    case = configs.mu_sota("fifty-steps", 7, 12, ragged=True, **sizes)
    initial, (inputs, _) = golden.build(case.model), golden.text_batch(case)
    entries = {f"input.{name}": v for name, v in inputs.items()}
    entries |= {f"param.{name}": p.detach() for name, p in initial.named_parameters()}
    for suffix, dtype in (("f64", torch.float64), ("f32", torch.float32)):
        model, batch = golden.in_precision(dtype, initial, inputs)
        entries[f"losses.{suffix}"], _ = golden.train(model, batch, golden.text_loss)
    entries["losses.f32_reordered"] = golden.reordered_losses(initial, inputs, golden.text_loss)
    arguments.out.mkdir(parents=True, exist_ok=True)
    config = dict(model=case.model, lr=LR, clip_norm=golden.CLIP_NORM, seed=arguments.seed, pytorch=torch.__version__)
    path = arguments.out / f"{case.name}.safetensors"
    save_file({k: v.contiguous() for k, v in entries.items()}, path, {"config": json.dumps(config)})
    losses, strayed = entries["losses.f64"], entries["losses.f32"]
    print(f"{path}  loss {losses[0]:.4f} → {losses[-1]:.4f}  f32 strays by {float((strayed - losses).abs().max()):.1e}")


if __name__ == "__main__":
    main()
