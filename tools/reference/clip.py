#!/usr/bin/env python3
"""Writes golden files of CLIP: what transformers computes, to compare plimsoll with.

    clip.py --family clip --out DIR                       the named small sizes
    clip.py --family clip --out DIR --random 20 --seed 7  twenty random configurations
    clip.py --family clip --out DIR --workloads           the size of the reference workload

Weights are random, biases and norms too, so that no gradient is zero by symmetry. Rows of weight 0
hold no sample: they count neither in the loss nor among what the others are compared with.
"""
import torch
from torch.nn import functional as F
from transformers import CLIPConfig, CLIPModel

import golden
from configs import Case, heads_of, odd


def clip(name, rows, length, text, vision, absent=0, **sizes):
    """`length` tokens per text; the last `absent` of the rows are not there."""
    return Case(name, dict(family="clip", text_config=text, vision_config=vision, **sizes), dict(rows=rows, length=length, absent=absent))


def tower(width, heads, intermediate, layers, act):
    return dict(hidden_size=width, num_attention_heads=heads, intermediate_size=intermediate, num_hidden_layers=layers, hidden_act=act)


def named_clip():
    quick, exact = "quick_gelu", "gelu"
    text = tower(8, 2, 9, 2, quick) | dict(vocab_size=17, max_position_embeddings=13, eos_token_id=1)
    vision = tower(9, 3, 11, 2, quick) | dict(image_size=12, patch_size=4)
    odd_text = tower(15, 5, 7, 1, exact) | dict(vocab_size=19, max_position_embeddings=9, eos_token_id=2)
    odd_vision = tower(14, 7, 5, 1, exact) | dict(image_size=13, patch_size=5, num_channels=2, layer_norm_eps=1e-3)
    return [
        clip("tiny", 5, 11, text, vision, projection_dim=6),
        clip("tiny-ragged", 6, 13, text, vision, absent=2, projection_dim=6),
        clip("odd", 7, 9, odd_text, odd_vision, projection_dim=9, logit_scale_init_value=1.5),
        clip("deep", 3, 5, text | dict(num_hidden_layers=3), vision | dict(image_size=7, patch_size=7), projection_dim=7),
    ]


def workload_clip():
    text = tower(128, 4, 512, 4, "quick_gelu") | dict(vocab_size=2000, max_position_embeddings=32, eos_token_id=1)
    vision = tower(128, 4, 512, 4, "quick_gelu") | dict(image_size=64, patch_size=8)
    return [clip("clip-workload-mini", 8, 32, text, vision, projection_dim=128)]


def random_tower(rng):
    width = odd(rng, 3, 33) * rng.choice([1, 1, 2])
    return tower(width, heads_of(rng, width), rng.randint(5, 60), rng.randint(1, 3), rng.choice(["quick_gelu", "gelu"]))


def random_clip(rng, name):
    rows, length, patch = rng.randint(2, 9), rng.choice([2, *range(3, 30, 2)]), rng.randint(3, 16)
    positions = length + rng.randint(0, 5)
    text = random_tower(rng) | dict(vocab_size=rng.randint(11, 90), max_position_embeddings=positions, eos_token_id=rng.randint(1, 3))
    vision = random_tower(rng) | dict(image_size=patch + rng.randint(0, 24), patch_size=patch, num_channels=rng.randint(1, 4))
    absent = rng.randint(1, rows - 2) if rows > 3 and rng.random() < 0.5 else 0
    return clip(name, rows, length, text, vision, absent, projection_dim=rng.randint(3, 40), logit_scale_init_value=rng.choice([2.6592, 0.5, 4.0]))


def read_out(ids, eos):
    """Where transformers reads a text: at the first `eos`; 2 is an old convention for the largest id."""
    return ids.argmax(-1) if eos == 2 else (ids == eos).int().argmax(-1)


def captions(case):
    """Ids of texts of all lengths, each ending in `eos`; what follows is arbitrary."""
    rows, length, text = case.batch["rows"], case.batch["length"], case.model["text_config"]
    last = torch.randint(length, (rows,))
    last[0], last[-1] = length - 1, 0
    if text["eos_token_id"] == 2:
        ids = torch.randint(text["vocab_size"] - 1, (rows, length))
        return ids.scatter(1, last[:, None], text["vocab_size"] - 1)
    ids = torch.randint(4, text["vocab_size"], (rows, length))
    return ids.scatter(1, last[:, None], text["eos_token_id"])


def batch_of(case):
    rows, length, vision = case.batch["rows"], case.batch["length"], case.model["vision_config"]
    side, ids = vision["image_size"], captions(case)
    weight = (torch.arange(rows) < rows - case.batch["absent"]).float()
    eos = torch.arange(rows) * length + read_out(ids, case.model["text_config"]["eos_token_id"])
    return dict(pixels=torch.randn(rows, vision.get("num_channels", 3), side, side), ids=ids, eos=eos, weight=weight)


def build(model):
    sizes = {k: v for k, v in model.items() if k != "family"}
    sizes["text_config"] = sizes["text_config"] | dict(bos_token_id=0, pad_token_id=0)
    # Not "eager", whose softmax is f32 in an f64 model too.
    built = CLIPModel(CLIPConfig(**sizes, attn_implementation="sdpa"))
    with torch.no_grad():
        for name, parameter in built.named_parameters():
            if parameter.ndim == 1:
                parameter.add_(0.2 * torch.randn_like(parameter))
    return built


def loss_of(model, batch):
    """Logits of all images, and the loss over the pairs that are there."""
    logits = model(input_ids=batch["ids"], pixel_values=batch["pixels"]).logits_per_image
    there = batch["weight"] > 0
    pairs = logits[there][:, there]
    target = torch.arange(len(pairs))
    return logits, (F.cross_entropy(pairs, target) + F.cross_entropy(pairs.T, target)) / 2


def compute(case):
    return golden.record(build(case.model), batch_of(case), loss_of)


FAMILIES = {"clip": dict(named=named_clip, workload=workload_clip, random=random_clip)}

if __name__ == "__main__":
    golden.main(FAMILIES, compute, __doc__)
