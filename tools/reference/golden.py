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
    rows = case.batch["rows"]
    x = torch.randn(rows, case.model["window"], case.model["features"])
    return dict(x=x, label=torch.randint(case.model["classes"], (rows,)), weight=torch.ones(rows))


def ragged_lengths(rows, longest):
    """Row 0 is full, row 1 (if any) has one token and so no target at all, the others lie between."""
    lengths = torch.randint(1, longest + 1, (rows,))
    lengths[1:2] = 1
    lengths[0] = longest
    return lengths


def text_batch(case):
    """Position t predicts token t + 1; the last position, and those behind a ragged row's end, predict nothing."""
    rows, length = case.batch["rows"], case.batch["length"]
    ids = torch.randint(case.model["vocab"], (rows, length))
    lengths = ragged_lengths(rows, length) if case.batch["ragged"] else torch.full((rows,), length)
    weights = (torch.arange(1, length + 1) < lengths[:, None]).float()
    targets = torch.cat([ids.flatten()[1:], torch.zeros(1, dtype=ids.dtype)]).view(rows, length)
    return dict(ids=ids, targets=targets, weights=weights), lengths


def series_loss(model, batch):
    logits = model(batch["x"])
    return logits, F.cross_entropy(logits, batch["label"])


def text_loss(model, batch):
    """Mean cross-entropy over the real next-token targets."""
    logits, weights = model(batch["ids"]), batch["weights"].flatten()
    each = F.cross_entropy(logits.flatten(0, 1), batch["targets"].flatten(), reduction="none")
    return logits, (each * weights).sum() / weights.sum()


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


def record(initial, inputs, loss_of):
    """What every golden file holds, of any model: and PyTorch's own f32 deviation.

    `initial` is the f32 model; `inputs` one batch under the names of plimsoll's graph, the batch first in
    every shape; `loss_of(model, inputs)` gives the outputs and the mean loss.
    """
    double, double_batch = in_precision(torch.float64, initial, inputs)
    truth = first_step(double, double_batch, loss_of)
    own_error = deviation(first_step(*in_precision(torch.float32, initial, inputs), loss_of), truth)
    entries = {f"input.{name}": v for name, v in inputs.items()} | dict(logits=truth[0], loss=truth[1])
    entries |= {f"param.{name}": p.detach() for name, p in initial.named_parameters()}
    entries |= {f"grad.{name}": g.float() for name, g in truth[2].items()}
    entries |= running_statistics(double)
    for suffix, dtype in (("f64", torch.float64), ("f32", torch.float32)):
        model, batch = in_precision(dtype, initial, inputs)
        entries[f"losses.{suffix}"], entries[f"grad_norms.{suffix}"] = train(model, batch, loss_of)
    entries["losses.f32_reordered"] = reordered_losses(initial, inputs, loss_of)
    return entries, own_error


def compute(case):
    """All tensors of one golden file of our own families, and PyTorch's own f32 deviation."""
    initial = build(case.model)
    if case.model["family"] == "mu-sota":
        inputs, lengths = text_batch(case)
        entries, own_error = record(initial, inputs, text_loss)
        return entries | (dict(length=lengths) if case.batch["ragged"] else {}), own_error
    inputs = series_batch(case)
    entries, own_error = record(initial, inputs, series_loss)
    double, batch = in_precision(torch.float64, initial, inputs)
    series_loss(double, batch)
    return entries | dict(eval_logits=eval_logits(double, batch)), own_error


def write(case, seed, out, compute=compute):
    """Writes the golden file of one case: `compute(case)` gives its tensors and PyTorch's own f32 deviation."""
    torch.manual_seed(seed)
    entries, own_error = compute(case)
    assert all(v.isfinite().all() for v in entries.values()), f"{case.name}: PyTorch computed a NaN or an infinity"
    config = dict(model=case.model, name=case.name, seed=seed, pytorch=torch.__version__, pytorch_f32_deviation=own_error)
    path = out / f"{case.name}.safetensors"
    # One key of metadata: the order of several is not fixed.
    save_file({k: v.contiguous() for k, v in entries.items()}, path, {"config": json.dumps(config)})
    drift = float((entries["losses.f32"] - entries["losses.f64"]).abs().max())
    print(f"{path}  loss {float(entries['loss']):.6f}  f32: logits {own_error['logits']:.1e}, gradients {own_error['gradient']:.1e}, ten losses {drift:.1e}")


def cases_of(arguments, families):
    family = families[arguments.family]
    if arguments.workloads:
        return family["workload"]()
    if not arguments.random:
        return family["named"]()
    rng = random.Random(f"{arguments.family} {arguments.seed}")
    return [family["random"](rng, f"{arguments.family}-random-{arguments.seed}-{i:02}") for i in range(arguments.random)]


def main(families=configs.FAMILIES, compute=compute, description=__doc__):
    """The command line of a script that writes golden files of these families."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--family", choices=families, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--random", type=int, default=0, metavar="N", help="N random configurations instead of the named sizes")
    parser.add_argument("--workloads", action="store_true", help="the sizes of the reference workloads instead")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # one summation order
    arguments.out.mkdir(parents=True, exist_ok=True)
    for i, case in enumerate(cases_of(arguments, families)):
        write(case, arguments.seed * 1000 + i, arguments.out, compute)


if __name__ == "__main__":
    main()
