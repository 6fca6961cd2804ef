#!/usr/bin/env python3
"""Writes golden files of T5: what transformers computes for one case, to compare plimsoll with.

    t5.py --family t5 --out DIR                       the named small sizes
    t5.py --family t5 --out DIR --random 20 --seed 7  twenty random configurations
    t5.py --family t5 --out DIR --workloads           layers as wide as flan-t5-small's

Sources and labels are padded; activations, tied and untied heads, and outputs scaled or not all occur.
What a file holds is listed in README.md.
"""
import torch
from torch import nn
from torch.nn import functional as F
from transformers import T5Config, T5ForConditionalGeneration
from transformers.models.t5 import modeling_t5

import golden
from configs import Case, odd


def norm_in_own_precision(self, x):
    """As the library's, which rounds the mean square to f32 even in an f64 model: the truth would not be exact."""
    return self.weight * x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.variance_epsilon)


modeling_t5.T5LayerNorm.forward = norm_in_own_precision


def case(name, rows, source, target, tied=True, scaled=True, **sizes):
    sizes = dict(relative_attention_num_buckets=32, relative_attention_max_distance=128, feed_forward_proj="relu") | sizes
    model = dict(family="t5", dropout_rate=0.0, tie_word_embeddings=tied, scale_decoder_outputs=scaled, **sizes)
    return Case(name, model, dict(rows=rows, source=source, target=target))


def named():
    few = dict(relative_attention_num_buckets=6, relative_attention_max_distance=9)
    return [
        case("relu", 4, 11, 7, vocab_size=37, d_model=12, d_kv=4, d_ff=20, num_layers=2, num_decoder_layers=2, num_heads=3),
        case("gated-gelu-untied", 3, 9, 13, tied=False, scaled=False, vocab_size=41, d_model=14, d_kv=3, d_ff=17, num_layers=1,
             num_decoder_layers=3, num_heads=5, feed_forward_proj="gated-gelu", **few),
        case("gated-gelu-tied", 2, 37, 5, scaled=False, vocab_size=23, d_model=10, d_kv=18, d_ff=9, num_layers=2,
             num_decoder_layers=1, num_heads=1, feed_forward_proj="gated-gelu", **few),
        case("gated-silu-untied", 5, 3, 21, tied=False, vocab_size=19, d_model=9, d_kv=2, d_ff=11, num_layers=1,
             num_decoder_layers=1, num_heads=7, feed_forward_proj="gated-silu"),
        case("least", 2, 2, 1, vocab_size=5, d_model=4, d_kv=2, d_ff=3, num_layers=1, num_decoder_layers=1, num_heads=1),
    ]


def workload():
    sizes = dict(vocab_size=1000, d_model=512, d_kv=64, d_ff=1024, num_layers=2, num_decoder_layers=2, num_heads=6)
    return [case("t5-workload", 4, 64, 64, feed_forward_proj="gated-gelu", tied=False, scaled=False, **sizes)]


def random_case(rng, name):
    tied = rng.random() < 0.5
    buckets = rng.choice([4, 6, 10, 32])
    return case(
        name, rows=rng.randint(2, 6), source=rng.randint(2, 41), target=rng.randint(1, 37), tied=tied,
        scaled=rng.random() < 0.5, vocab_size=rng.randint(11, 97), d_model=rng.randint(4, 40), d_kv=rng.randint(2, 20),
        d_ff=rng.randint(5, 60), num_layers=rng.randint(1, 3), num_decoder_layers=rng.randint(1, 3), num_heads=odd(rng, 1, 7),
        relative_attention_num_buckets=buckets, relative_attention_max_distance=buckets + rng.randint(0, 100),
        feed_forward_proj=rng.choice(["relu", "gated-gelu", "gated-silu"]),
    )


def build(sizes):
    """Random weights. Norms and tables are moved away from where training starts, so that every gradient is seen."""
    keys = {k: v for k, v in sizes.items() if k not in ("family", "tie_word_embeddings", "scale_decoder_outputs")}
    config = T5Config(**keys, tie_word_embeddings=sizes["scale_decoder_outputs"], decoder_start_token_id=0)
    config._attn_implementation = "eager"
    model = T5ForConditionalGeneration(config)
    if not sizes["tie_word_embeddings"]:
        # The library ties whatever the configuration says; a checkpoint with two tensors is untied.
        model.lm_head.weight = nn.Parameter(torch.randn_like(model.shared.weight))
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "norm" in name or "relative" in name:
                p += 0.3 * torch.randn_like(p)
    return model


def lengths_of(rows, longest):
    lengths = torch.randint(1, longest + 1, (rows,))
    lengths[0] = longest
    return lengths


def batch_of(case):
    """Sources and labels of different lengths, each padded with 0 on the right; the decoder reads labels shifted."""
    rows, vocab = case.batch["rows"], case.model["vocab_size"]
    mask = torch.arange(case.batch["source"]) < lengths_of(rows, case.batch["source"])[:, None]
    real = torch.arange(case.batch["target"]) < lengths_of(rows, case.batch["target"])[:, None]
    ids = torch.randint(1, vocab, mask.shape) * mask
    targets = torch.randint(1, vocab, real.shape) * real
    decoder_ids = torch.cat([torch.zeros(rows, 1, dtype=torch.long), targets[:, :-1]], 1)
    return dict(ids=ids, mask=mask.long(), decoder_ids=decoder_ids, targets=targets, weights=real.float())


def loss_of(model, batch):
    """Mean cross-entropy over the real labels."""
    logits = model(input_ids=batch["ids"], attention_mask=batch["mask"], decoder_input_ids=batch["decoder_ids"]).logits
    weights = batch["weights"].flatten()
    each = F.cross_entropy(logits.flatten(0, 1), batch["targets"].flatten(), reduction="none")
    return logits, (each * weights).sum() / weights.sum()


def compute(case):
    return golden.record(build(case.model), batch_of(case), loss_of)


FAMILIES = {"t5": dict(named=named, workload=workload, random=random_case)}

if __name__ == "__main__":
    golden.main(FAMILIES, compute, __doc__)
