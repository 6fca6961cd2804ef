#!/usr/bin/env python3
"""Writes golden files: what PyTorch computes for one case, to compare plimsoll with.

    golden.py --family hybrid  --out DIR                       the named small sizes
    golden.py --family mu-sota --out DIR --random 20 --seed 7  twenty random configurations
    golden.py --family hybrid  --out DIR --workloads           the sizes of the reference workloads

The truth is an f64 model that starts from f32 weights; an f32 run beside it shows how far PyTorch
itself strays. What a file holds is listed in README.md.
"""
import argparse
import copy
import json
import math
import random
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional as F

import configs
import models

STEPS = 10
CLIP_NORM = 1.0
OPTIMIZER = dict(lr=1e-5, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01)


def build(model):
    sizes = {k: v for k, v in model.items() if k not in ("family", "window", "batch_norm")}
    return models.MuSota(**sizes) if model["family"] == "mu-sota" else models.HybridCnnLstm(**sizes)


def series_batch(case):
    x = torch.randn(case.batch["rows"], case.model["window"], case.model["features"])
    return dict(x=x, label=torch.randint(case.model["classes"], (case.batch["rows"],)))


def ragged_lengths(rows, longest):
    """Row 0 is full, row 1 (if any) has one token and so no target at all, the others lie between."""
    lengths = torch.randint(1, longest + 1, (rows,))
    lengths[1:2] = 1
    lengths[0] = longest
    return lengths


def text_batch(case):
    rows, length = case.batch["rows"], case.batch["length"]
    batch = dict(ids=torch.randint(case.model["vocab"], (rows, length)))
    if case.batch["ragged"]:
        batch["length"] = ragged_lengths(rows, length)
        target = torch.arange(1, length + 1)  # position t predicts token t + 1; the last position predicts nothing
        batch["weight"] = (target < batch["length"][:, None]).float()
    return batch


def series_loss(model, batch):
    logits = model(batch["x"])
    return logits, F.cross_entropy(logits, batch["label"])


def text_loss(model, batch):
    """Mean cross-entropy over all next-token targets, or over the real ones of a ragged batch."""
    ids = batch["ids"]
    logits = model(ids)
    each = F.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten(), reduction="none")
    if "weight" not in batch:
        return logits, each.mean()
    weight = batch["weight"][:, :-1].flatten()
    return logits, (each * weight).sum() / weight.sum()


def in_precision(dtype, model, batch):
    cast = {k: v.to(dtype) if v.is_floating_point() else v for k, v in batch.items()}
    return copy.deepcopy(model).to(dtype).train(), cast


def first_step(model, batch, loss_of):
    """Outputs, loss and unclipped gradients at the initial weights; batch norm in training mode."""
    logits, loss = loss_of(model, batch)
    loss.backward()
    return logits.detach(), loss.detach(), {name: p.grad for name, p in model.named_parameters()}


def train(model, batch, loss_of):
    """Losses before each of ten AdamW steps on the same batch, and the gradient norms before clipping."""
    optimizer = torch.optim.AdamW(model.parameters(), **OPTIMIZER)
    losses, norms = [], []
    for _ in range(STEPS):
        optimizer.zero_grad()
        _, loss = loss_of(model, batch)
        loss.backward()
        norms.append(float(nn.utils.clip_grad_norm_(model.parameters(), CLIP_NORM)))
        losses.append(float(loss.detach()))
        optimizer.step()
    return torch.tensor(losses, dtype=torch.float64), torch.tensor(norms, dtype=torch.float64)


def reordered_losses(initial, inputs, loss_of):
    """The f32 run again with the rows of the batch rotated, (runs, 10).

    The mean over rows does not change, its rounding does. For a tiny model one f32 run can land on
    the f64 losses by luck; several runs show how far f32 strays.
    """
    rotations = range(1, min(4, len(next(iter(inputs.values())))))
    batches = [{k: v.roll(r, 0) for k, v in inputs.items()} for r in rotations]
    return torch.stack([train(*in_precision(torch.float32, initial, b), loss_of)[0] for b in batches])


def running_statistics(model):
    return {f"state.{name}": b for name, b in model.named_buffers() if b.is_floating_point()}


def relative(a, b, floor=0.0):
    return float((a.double() - b).norm() / max(float(b.norm()), floor, 1e-300))


def deviation(single, double):
    """How far PyTorch's own f32 pass lies from f64, in the norms the parity check uses."""
    floor = 1e-3 * math.sqrt(sum(float(g.norm()) ** 2 for g in double[2].values()))
    gradients = {name: relative(single[2][name], g, floor) for name, g in double[2].items()}
    return dict(logits=relative(single[0], double[0]), gradient=max(gradients.values()))


def eval_logits(model, batch):
    """Outputs in evaluation mode, after one training pass has moved the running statistics."""
    with torch.no_grad():
        logits = model.eval()(batch["x"])
    model.train()
    return logits


def recipe_of(case):
    task = "language-model" if case.model["family"] == "mu-sota" else "series"
    optimizer = dict(name="adamw", **OPTIMIZER, decay_all=True)
    train_table = dict(task=task, effective_batch=case.batch["rows"], clip_norm=CLIP_NORM, optimizer=optimizer, schedule=dict(name="constant"))
    return dict(model=case.model, train=train_table)


def compute(case, seed):
    """All tensors of one golden file, and PyTorch's own f32 deviation."""
    torch.manual_seed(seed)
    text = case.model["family"] == "mu-sota"
    initial = build(case.model)
    inputs = (text_batch if text else series_batch)(case)
    loss_of = text_loss if text else series_loss

    double, double_batch = in_precision(torch.float64, initial, inputs)
    truth = first_step(double, double_batch, loss_of)
    own_error = deviation(first_step(*in_precision(torch.float32, initial, inputs), loss_of), truth)
    entries = dict(inputs, logits=truth[0], loss=truth[1])
    entries |= {f"param.{name}": p.detach() for name, p in initial.named_parameters()}
    entries |= {f"grad.{name}": g.float() for name, g in truth[2].items()}
    entries |= running_statistics(double)
    if not text:
        entries["eval_logits"] = eval_logits(double, double_batch)
    for suffix, dtype in (("f64", torch.float64), ("f32", torch.float32)):
        model, batch = in_precision(dtype, initial, inputs)
        entries[f"losses.{suffix}"], entries[f"grad_norms.{suffix}"] = train(model, batch, loss_of)
    entries["losses.f32_reordered"] = reordered_losses(initial, inputs, loss_of)
    return {k: v.contiguous() for k, v in entries.items()}, own_error


def write(case, seed, out):
    entries, own_error = compute(case, seed)
    assert all(v.isfinite().all() for v in entries.values()), f"{case.name}: PyTorch computed a NaN or an infinity"
    config = recipe_of(case) | dict(name=case.name, seed=seed, pytorch=torch.__version__, pytorch_f32_deviation=own_error)
    path = out / f"{case.name}.safetensors"
    save_file(entries, path, {"config": json.dumps(config)})  # one key: the order of several is not fixed
    drift = float((entries["losses.f32"] - entries["losses.f64"]).abs().max())
    print(f"{path}  loss {float(entries['loss']):.6f}  f32: logits {own_error['logits']:.1e}, gradients {own_error['gradient']:.1e}, ten losses {drift:.1e}")


def cases_of(arguments):
    family = configs.FAMILIES[arguments.family]
    if arguments.workloads:
        return family["workload"]()
    if not arguments.random:
        return family["named"]()
    rng = random.Random(f"{arguments.family} {arguments.seed}")
    return [family["random"](rng, f"{arguments.family}-random-{arguments.seed}-{i:02}") for i in range(arguments.random)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--family", choices=configs.FAMILIES, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--random", type=int, default=0, metavar="N", help="N random configurations instead of the named sizes")
    parser.add_argument("--workloads", action="store_true", help="the sizes of the reference workloads instead")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # one summation order
    arguments.out.mkdir(parents=True, exist_ok=True)
    for i, case in enumerate(cases_of(arguments)):
        write(case, arguments.seed * 1000 + i, arguments.out)


if __name__ == "__main__":
    main()
