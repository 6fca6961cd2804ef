"""Sizes the golden files are made at: named ones, the reference workloads, and random odd ones.

A case is (name, model, batch): `model` holds the recipe's keys of the family, `batch` the sizes of
one batch (`rows`, and for mu-sota `length` and whether the rows are `ragged`).
"""
from typing import NamedTuple


class Case(NamedTuple):
    name: str
    model: dict
    batch: dict


def hybrid(name, rows, features, window, channels, hidden, heads, classes):
    model = dict(family="hybrid-cnn-lstm", features=features, window=window, channels=list(channels), hidden=hidden,
                 heads=heads, classes=classes, dropout=0.0, batch_norm="effective")
    return Case(name, model, dict(rows=rows))


def mu_sota(name, rows, length, ragged=False, **sizes):
    return Case(name, dict(family="mu-sota", **sizes), dict(rows=rows, length=length, ragged=ragged))


def named_hybrid():
    return [
        hybrid("tiny", 4, features=8, window=12, channels=(8, 16), hidden=8, heads=4, classes=3),
        hybrid("least", 2, features=1, window=5, channels=(1,), hidden=3, heads=1, classes=2),
        hybrid("odd", 3, features=5, window=13, channels=(7, 9), hidden=7, heads=7, classes=5),
        hybrid("deep", 7, features=3, window=23, channels=(5, 11, 3), hidden=9, heads=2, classes=3),
    ]


def named_mu_sota():
    tiny = dict(vocab=31, layers=2, blocks=4, block_width=4, block_heads=2, cross_heads=4, ffn=24, max_length=16)
    odd = dict(vocab=53, layers=1, blocks=3, block_width=5, block_heads=1, cross_heads=5, ffn=17, max_length=37)
    return [
        mu_sota("tiny", 3, 12, **tiny),
        mu_sota("tiny-ragged", 4, 12, ragged=True, **tiny),
        mu_sota("least", 2, 2, vocab=11, layers=1, blocks=1, block_width=4, block_heads=2, cross_heads=1, ffn=5, max_length=2),
        mu_sota("odd", 2, 37, **odd),
        mu_sota("odd-ragged", 5, 23, ragged=True, **odd),
        mu_sota("deep", 2, 9, vocab=19, layers=3, blocks=5, block_width=4, block_heads=1, cross_heads=10, ffn=33, max_length=11),
    ]


def workload_hybrid():
    return [hybrid("hybrid-workload", 8, features=64, window=60, channels=(128, 256), hidden=256, heads=4, classes=3)]


def workload_mu_sota():
    small = dict(vocab=1000, layers=4, blocks=16, block_width=4, block_heads=2, cross_heads=8, ffn=640, max_length=512)
    return [mu_sota("mu-sota-workload-small", 4, 128, **small), mu_sota("mu-sota-workload-small-ragged", 4, 128, ragged=True, **small)]


def odd(rng, low, high):
    return rng.randrange(low | 1, high + 1, 2)


def heads_of(rng, width):
    """A head count that divides the width and leaves heads of at least two (what the fused attention takes)."""
    return rng.choice([h for h in range(1, width // 2 + 1) if width % h == 0])


def random_hybrid(rng, name):
    hidden = odd(rng, 3, 21)
    channels = [odd(rng, 1, 21) for _ in range(rng.randint(1, 3))]
    return hybrid(name, rows=rng.randint(2, 7), features=rng.randint(1, 12), window=rng.randint(5, 23), channels=channels,
                  hidden=hidden, heads=heads_of(rng, 2 * hidden), classes=rng.randint(2, 7))


def random_mu_sota(rng, name):
    blocks, width, length = rng.randint(1, 6), rng.randint(2, 9), rng.choice([2, *range(3, 38, 2)])
    return mu_sota(name, rows=rng.randint(2, 7), length=length, ragged=length > 2 and rng.random() < 0.5,
                   vocab=rng.randint(11, 97), layers=rng.randint(1, 3), blocks=blocks, block_width=width,
                   block_heads=heads_of(rng, width), cross_heads=heads_of(rng, blocks * width),
                   ffn=rng.randint(5, 70), max_length=length + rng.randint(0, 5))


FAMILIES = {
    "hybrid": dict(named=named_hybrid, workload=workload_hybrid, random=random_hybrid),
    "mu-sota": dict(named=named_mu_sota, workload=workload_mu_sota, random=random_mu_sota),
}
