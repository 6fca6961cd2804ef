#!/usr/bin/env python3
"""Compares models.py with another definition of the two families: same outputs, gradients and running statistics.

    against.py PATH     a Python file with HybridCnnLstm, MuSota, MuLayer and MuLayerBatched

Everything runs in f64 with weights copied from the other definition, so agreement is to rounding.
Exit code 1 when anything differs by more than 1e-10 (relative, in the 2-norm).
"""
import argparse
import importlib.util
import sys

import torch
from torch.nn import functional as F

import models

TOLERANCE = 1e-10


def load(path):
    spec = importlib.util.spec_from_file_location("other_definition", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def stacked(tensors):
    return torch.stack(list(tensors))


def hybrid_names(get, convs):
    """plimsoll name -> tensor, where `get(name)` looks a tensor up in the other definition."""
    pairs = {}
    for i in range(convs):  # the other file keeps conv, norm, GELU, dropout in one sequence of fours
        pairs |= {f"conv.{i}.{p}": get(f"conv.{4 * i}.{p}") for p in ("weight", "bias")}
        pairs |= {f"conv.{i}.norm.{p}": get(f"conv.{4 * i + 1}.{p}") for p in ("weight", "bias")}
    for layer in range(2):
        for ours, theirs in dict(w_ih="weight_ih", w_hh="weight_hh", b_ih="bias_ih", b_hh="bias_hh").items():
            pairs[f"lstm.{layer}.{ours}"] = stacked(get(f"lstm.{theirs}_l{layer}{end}") for end in ("", "_reverse"))
    modules = {"attn.norm": "norm1", "attn.qkv": "qkv", "attn.proj": "proj", "ffn.norm": "norm2", "ffn.up": "ffn.0", "ffn.down": "ffn.3", "head": "head"}
    return pairs | {f"{ours}.{p}": get(f"{theirs}.{p}") for ours, theirs in modules.items() for p in ("weight", "bias")}


def mu_block_names(get, layer, blocks, batched):
    at = f"layers.{layer}"
    pairs = {}
    for part in ("qkv", "out"):
        if batched:  # (n, in, out) and (n, 1, out)
            weight, bias = get(f"{at}.{part}_w").mT, get(f"{at}.{part}_b").squeeze(1)
        else:
            weight, bias = (stacked(get(f"{at}.blocks.{b}.{part}.{p}") for b in range(blocks)) for p in ("weight", "bias"))
        pairs |= {f"{at}.blocks.{part}.weight": weight, f"{at}.blocks.{part}.bias": bias}
    return pairs


def mu_names(get, layers, blocks, batched):
    pairs = {name: get(name) for name in ("tok.weight", "pos.weight", "norm.weight", "norm.bias", "head.weight")}
    joint = "_" if batched else "."
    modules = {f"norm{i}": f"norm{i}" for i in (1, 2, 3)}
    modules |= {"cross.qkv": f"cross{joint}qkv", "cross.out": f"cross{joint}out", "ffn.up": "ffn.0", "ffn.down": "ffn.2"}
    for layer in range(layers):
        at = f"layers.{layer}"
        pairs |= mu_block_names(get, layer, blocks, batched)
        pairs |= {f"{at}.{ours}.{p}": get(f"{at}.{theirs}.{p}") for ours, theirs in modules.items() for p in ("weight", "bias")}
    return pairs


def distance(a, b, floor):
    return float((a - b).norm() / max(b.norm(), floor))


def compare(title, ours, theirs, names, loss_of):
    """Copies their weights into ours, runs both once, returns the largest deviation found."""
    ours.double().train(), theirs.double().train()
    ours.load_state_dict({k: v.detach().clone() for k, v in names(theirs.get_parameter).items()}, strict=False)
    assert {k for k, _ in ours.named_parameters()} == set(names(theirs.get_parameter)), "some parameter was not copied"
    outputs = []
    for model in (ours, theirs):
        out, loss = loss_of(model)
        loss.backward()
        outputs.append(out.detach())
    expected = names(lambda name: theirs.get_parameter(name).grad)
    floor = 1e-3 * stacked(g.norm() for g in expected.values()).norm()  # some gradients are zero in exact arithmetic
    worst = {"logits": distance(*outputs, floor=0)}
    worst |= {f"gradient of {k}": distance(p.grad, expected[k], floor) for k, p in ours.named_parameters()}
    state = [[b for n, b in m.named_buffers() if "running" in n] for m in (ours, theirs)]
    worst |= {f"running statistic {i}": distance(a, b, 0) for i, (a, b) in enumerate(zip(*state))}
    name, value = max(worst.items(), key=lambda item: item[1])
    print(f"{'ok  ' if value <= TOLERANCE else 'FAIL'} {title}: largest deviation {value:.1e} ({name})")
    return value


def compare_hybrid(other, materialized, batch=3, window=11, **sizes):
    x, label = torch.randn(batch, window, sizes["features"]).double(), torch.randint(sizes["classes"], (batch,))

    def loss_of(model):
        out = model(x)
        return out, F.cross_entropy(out, label)

    ours, theirs = models.HybridCnnLstm(**sizes, dropout=0.0), other.HybridCnnLstm(**sizes, dropout=0.0, materialized=materialized)
    names = lambda get: hybrid_names(get, len(sizes["channels"]))
    return compare(f"hybrid {sizes} materialized={materialized}", ours, theirs, names, loss_of)


def compare_mu(other, batched, blocks, block_width, layers=2, vocab=97, ffn=40, max_length=32, batch=2, steps=19):
    ids = torch.randint(vocab, (batch, steps))

    def loss_of(model):
        out = model(ids)
        return out, F.cross_entropy(out[:, :-1].flatten(0, 1), ids[:, 1:].flatten())

    cls = other.MuLayerBatched if batched else other.MuLayer
    layer = lambda ffn: cls(blocks=blocks, width=block_width, ffn=ffn)
    theirs = other.MuSota(vocab=vocab, layers=layers, d=blocks * block_width, max_len=max_length, ffn=ffn, layer=layer)
    # The other definition fixes two heads in a block and eight across.
    ours = models.MuSota(vocab, layers, blocks, block_width, block_heads=2, cross_heads=8, ffn=ffn, max_length=max_length)
    names = lambda get: mu_names(get, layers, blocks, batched)
    return compare(f"mu-sota {blocks} blocks of {block_width} batched={batched}", ours, theirs, names, loss_of)


def count(model):
    return sum(p.numel() for p in model.parameters())


def compare_counts(other):
    """The default sizes must be the other file's default sizes."""
    pairs = {"hybrid": (models.HybridCnnLstm(), other.HybridCnnLstm()), "mu-sota": (models.MuSota(), other.MuSota())}
    for name, (ours, theirs) in pairs.items():
        same = count(ours) == count(theirs)
        print(f"{'ok  ' if same else 'FAIL'} {name} at default sizes: {count(ours)} and {count(theirs)} parameters")
        yield 0.0 if same else float("inf")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path")
    other = load(parser.parse_args().path)
    torch.manual_seed(1)
    found = list(compare_counts(other))
    for materialized in (False, True):
        found.append(compare_hybrid(other, materialized, features=5, channels=(7,), hidden=9, heads=3, classes=4))
        found.append(compare_hybrid(other, materialized, features=8, channels=(6, 10, 4), hidden=8, heads=4, classes=3))
    for batched in (False, True):
        for blocks, width in ((16, 4), (4, 16), (1, 8)):
            found.append(compare_mu(other, batched, blocks, width))
    sys.exit(max(found) > TOLERANCE)


if __name__ == "__main__":
    main()
