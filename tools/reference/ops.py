#!/usr/bin/env python3
"""Writes one golden file for single ops: inputs, outputs and gradients in f64, from autograd.

    ops.py --out ops.safetensors

Entries: `<op>.<case>.in.<i>`, `.out`, `.dout` (the gradient that flows in), `.grad.<i>` (of input i; none
for integer and mask inputs). Optimizers: `.in.0` is the parameter, `.in.1..3` the gradients of three steps,
`.out.<step>` the parameter after each, `.state.<name>` what the optimizer holds after the last.
The metadata key `config` is a JSON object from `<op>.<case>` to its settings.
All inputs are f32 values, so that an f32 kernel starts from exactly the same numbers.
"""
import argparse
import json
import math
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch.nn import functional as F

import models


def draw(*shape, scale=1.0):
    return (torch.randn(shape) * scale).double()


class Goldens:
    def __init__(self):
        self.entries, self.config = {}, {}

    def op(self, name, function, inputs, **config):
        """Runs `function(*inputs)` and records the gradient of every floating input but those listed in `constant`."""
        skipped = config.pop("constant", ())
        leaves = [x.clone().requires_grad_(x.is_floating_point() and i not in skipped) for i, x in enumerate(inputs)]
        out = function(*leaves)
        dout = torch.ones_like(out) if out.dim() == 0 else draw(*out.shape)
        out.backward(dout)
        self.config[name] = config
        self.entries |= {f"{name}.in.{i}": x for i, x in enumerate(inputs)}
        self.entries |= {f"{name}.out": out.detach(), f"{name}.dout": dout}
        self.entries |= {f"{name}.grad.{i}": x.grad for i, x in enumerate(leaves) if x.requires_grad}

    def optimizer(self, name, kind, shape, **config):
        parameter = draw(*shape).requires_grad_()
        # The middle gradient is small and has exact zeros: what eps and clamping are for.
        gradients = [draw(*shape), draw(*shape, scale=1e-4).relu(), draw(*shape, scale=3.0)]
        self.entries |= {f"{name}.in.{i}": x for i, x in enumerate([parameter.detach().clone(), *gradients])}
        optimizer = kind([parameter], **config)
        for step, gradient in enumerate(gradients):
            parameter.grad = gradient.clone()
            optimizer.step()
            self.entries[f"{name}.out.{step}"] = parameter.detach().clone()
        state = optimizer.state[parameter].items()
        self.entries |= {f"{name}.state.{k}": v.double() for k, v in state if isinstance(v, torch.Tensor)}
        self.config[name] = config

    def write(self, path):
        entries = {k: v.clone().contiguous() for k, v in self.entries.items()}  # clone: no two entries share storage
        assert all(v.isfinite().all() for v in entries.values()), "PyTorch computed a NaN or an infinity"
        path.parent.mkdir(parents=True, exist_ok=True)
        save_file(entries, path, {"config": json.dumps(self.config)})


def norms(g):
    for case, shape in dict(small=(3, 8), odd=(2, 5, 7), wide=(2, 129)).items():
        x, weight, bias = draw(*shape) + 0.5, draw(shape[-1]), draw(shape[-1])
        x = x.float().double()
        g.op(f"layer_norm.{case}", lambda x, w, b: F.layer_norm(x, w.shape, w, b, 1e-5), [x, weight, bias], eps=1e-5)
        g.op(f"rms_norm.{case}", lambda x, w: F.rms_norm(x, w.shape, w, 1e-6), [x, weight], eps=1e-6)
    x = draw(2, 9)
    x[0] = x[0, 0]  # a constant row: the variance is zero and only eps is left
    g.op("layer_norm.constant_row", lambda x, w, b: F.layer_norm(x, w.shape, w, b, 1e-5), [x, draw(9), draw(9)], eps=1e-5)


def batch_norm(g):
    """x is (B, C, T); statistics over B and T. `new_mean` and `new_var` are the running statistics afterwards."""
    x, weight, bias, mean, var = draw(3, 5, 7, scale=2.0), draw(5), draw(5), draw(5), draw(5).square().float().double()
    for case, training in dict(training=True, evaluation=False).items():
        new_mean, new_var = mean.clone(), var.clone()
        run = lambda x, w, b, *_: F.batch_norm(x, new_mean, new_var, w, b, training, 0.1, 1e-5)
        name = f"batch_norm.{case}"
        g.op(name, run, [x, weight, bias, mean, var], constant=(3, 4), eps=1e-5, momentum=0.1, training=training)
        g.entries |= {f"{name}.new_mean": new_mean, f"{name}.new_var": new_var}


def activations(g):
    # The tails are where an approximation of erf or exp goes wrong.
    tails = torch.tensor([-40.0, -12.5, -6.0, -5.0, -1e-4, 0.0, 1e-4, 5.0, 6.0, 12.5, 40.0]).double()
    for case, x in dict(normal=draw(5, 13, scale=2.0), tails=tails).items():
        g.op(f"gelu.{case}", F.gelu, [x])
        g.op(f"silu.{case}", F.silu, [x])


def softmax(g):
    shifted = draw(3, 6) + torch.tensor([[300.0], [-300.0], [0.0]]).double()
    for case, x in dict(odd=draw(4, 7, scale=3.0), one=draw(3, 1), shifted=shifted.float().double()).items():
        g.op(f"softmax.{case}", lambda x: x.softmax(-1), [x])


def convolutions(g):
    """x is (B, C, T), the weight (O, C, k)."""
    cases = dict(k3_pad1=(2, 3, 9, 5, 3, 1), k5_pad2=(3, 4, 11, 2, 5, 2), k3_pad0=(2, 1, 7, 3, 3, 0), k5_short=(2, 3, 2, 4, 5, 2))
    for case, (rows, inputs, steps, outputs, kernel, pad) in cases.items():
        x, weight, bias = draw(rows, inputs, steps), draw(outputs, inputs, kernel), draw(outputs)
        g.op(f"conv1d.{case}", lambda x, w, b: F.conv1d(x, w, b, padding=pad), [x, weight, bias], padding=pad)


def lstm(g):
    """x is (B, T, in); weights (2, 4H, in), (2, 4H, H), biases (2, 4H) twice; gates i, f, g, o."""
    for case, (rows, steps, inputs, hidden) in dict(small=(2, 4, 3, 4), odd=(3, 7, 5, 3), one_step=(2, 1, 4, 5)).items():
        layer = models.BiLstm(inputs, hidden)
        weights = [p.detach().double() for p in (layer.w_ih, layer.w_hh, layer.b_ih, layer.b_hh)]

        def run(x, w_ih, w_hh, b_ih, b_hh):
            parameters = dict(w_ih=w_ih, w_hh=w_hh, b_ih=b_ih, b_hh=b_hh)
            return torch.func.functional_call(layer, parameters, (x,))

        g.op(f"bilstm.{case}", run, [draw(rows, steps, inputs, scale=2.0), *weights], hidden=hidden)


def masked_attention(q, k, v, real, causal):
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    hidden = ~real.bool()[:, None, None, :]
    if causal:
        hidden = hidden | torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    return scores.masked_fill(hidden, -math.inf).softmax(-1) @ v


def attention(g):
    """q, k, v are (B, H, T, D); input 3 is (B, T), 1 for a real key and 0 for padding. Padding lies at the end."""
    lengths = torch.tensor([9, 4, 1])
    real = (torch.arange(9) < lengths[:, None]).double()
    for case, causal, mask in (("causal_padded", True, real), ("padded", False, real), ("causal", True, torch.ones_like(real))):
        q, k, v = (draw(3, 2, 9, 3) for _ in range(3))
        g.op(f"attention.{case}", lambda q, k, v, m: masked_attention(q, k, v, m, causal), [q, k, v, mask], constant=(3,), causal=causal, scale=1 / math.sqrt(3))


def cross_entropy(g):
    """Inputs: logits (rows, classes), labels, row weights; out = sum(weight · loss) / sum(weight)."""

    def mean(logits, labels, weights):
        return (F.cross_entropy(logits, labels, reduction="none") * weights).sum() / weights.sum()

    ignored = torch.tensor([1, 0, 1, 1, 0, 0, 1]).double()
    for case, classes, weights, scale in (("ignored", 11, ignored, 2.0), ("all", 3, torch.ones(7).double(), 1.0), ("large", 37, ignored, 60.0)):
        logits, labels = draw(7, classes, scale=scale).float().double(), torch.randint(classes, (7,))
        g.op(f"cross_entropy.{case}", mean, [logits, labels, weights], constant=(2,))


def optimizers(g):
    adamw = dict(lr=1e-2, betas=(0.9, 0.999), eps=1e-8)
    adafactor = dict(lr=1e-2, beta2_decay=-0.8, eps=(1e-8, 1e-3), d=1.0)
    for case, shape in dict(matrix=(5, 7), vector=(11,)).items():
        g.optimizer(f"adamw.{case}", torch.optim.AdamW, shape, **adamw, weight_decay=0.1)
        g.optimizer(f"adamw.{case}_no_decay", torch.optim.AdamW, shape, **adamw, weight_decay=0.0)
        g.optimizer(f"sgd.{case}", torch.optim.SGD, shape, lr=1e-2, momentum=0.9, weight_decay=0.1)
        g.optimizer(f"sgd.{case}_plain", torch.optim.SGD, shape, lr=1e-2, momentum=0.0, weight_decay=0.0)
        g.optimizer(f"adafactor.{case}", torch.optim.Adafactor, shape, **adafactor, weight_decay=0.1)
    g.optimizer("adafactor.stack", torch.optim.Adafactor, (2, 3, 5), **adafactor, weight_decay=0.0)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(arguments.seed)
    goldens = Goldens()
    for group in (norms, batch_norm, activations, softmax, convolutions, lstm, attention, cross_entropy, optimizers):
        group(goldens)
    goldens.write(arguments.out)
    print(f"{arguments.out}: {len(goldens.config)} cases, {arguments.out.stat().st_size} bytes")


if __name__ == "__main__":
    main()
