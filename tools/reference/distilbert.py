#!/usr/bin/env python3
"""Writes golden files of DistilBERT: transformers' classifier with random weights.

    distilbert.py --family distilbert --out DIR                       the named small sizes
    distilbert.py --family distilbert --out DIR --random 20 --seed 7  twenty random configurations
    distilbert.py --family distilbert --out DIR --workloads           sizes that are really trained

What a file holds is listed in README.md.
"""
import transformers

import encoders
import golden
from configs import Case, heads_of
from encoders import MULTI, REGRESSION, SINGLE

NO_DROPOUT = dict(dropout=0.0, attention_dropout=0.0, seq_classif_dropout=0.0)


def sized(name, rows, length, **sizes):
    model = dict(family="distilbert", pad_token_id=0) | sizes | NO_DROPOUT
    return Case(name, model, dict(rows=rows, length=length))


def build(model):
    sizes = {k: v for k, v in model.items() if k != "family"}
    config = transformers.DistilBertConfig(**sizes, attn_implementation="eager")
    return encoders.spread(transformers.DistilBertForSequenceClassification(config))


def compute(case):
    return encoders.record(build(case.model), encoders.inputs_of(case))


def named():
    return [
        sized("tiny", 4, 9, vocab_size=29, dim=12, n_layers=2, n_heads=3, hidden_dim=20, max_position_embeddings=16,
              num_labels=3, problem_type=SINGLE, activation="gelu"),
        sized("labels", 3, 7, vocab_size=23, dim=10, n_layers=1, n_heads=5, hidden_dim=13, max_position_embeddings=11,
              num_labels=4, problem_type=MULTI, activation="relu", pad_token_id=5),
        sized("value", 5, 13, vocab_size=19, dim=14, n_layers=1, n_heads=1, hidden_dim=17, max_position_embeddings=19,
              num_labels=1, problem_type=REGRESSION, activation="gelu"),
    ]


def workloads():
    """As wide as a small model that people train, with a small vocabulary."""
    return [sized("distilbert-workload", 4, 77, vocab_size=500, dim=384, n_layers=4, n_heads=12, hidden_dim=1536,
                  max_position_embeddings=130, num_labels=5, problem_type=SINGLE, activation="gelu")]


def random_case(rng, name):
    # Over few numbers a layer norm is nearly a sign, of which no gradient is worth comparing.
    width, length = rng.randint(8, 99), rng.choice([2, *range(3, 50, 2)])
    problem = rng.choice([SINGLE, MULTI, REGRESSION])
    return sized(
        name, rng.randint(2, 7), length, vocab_size=rng.randint(11, 97), dim=width, n_layers=rng.randint(1, 3),
        n_heads=heads_of(rng, width), hidden_dim=rng.randint(5, 90), max_position_embeddings=length + rng.randint(0, 5),
        num_labels=rng.randint(2, 7) if problem == SINGLE else rng.randint(1, 5), problem_type=problem,
        activation=rng.choice(["gelu", "relu", "gelu", "silu"]), pad_token_id=rng.randint(0, 3))


FAMILIES = {"distilbert": dict(named=named, workload=workloads, random=random_case)}

if __name__ == "__main__":
    transformers.logging.set_verbosity_error()
    golden.main(FAMILIES, compute, __doc__)
