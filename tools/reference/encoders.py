#!/usr/bin/env python3
"""Writes golden files of the encoders: transformers' classifiers with random weights.

    encoders.py --family bert       --out DIR                       the named small sizes
    encoders.py --family deberta-v3 --out DIR --random 20 --seed 7  twenty random configurations
    encoders.py --family roberta    --out DIR --workloads           sizes that are really trained

What a file holds is listed in README.md.
"""
import torch
import transformers
from torch.nn import functional as F

import golden
from configs import Case, heads_of

SINGLE, MULTI, REGRESSION = "single_label_classification", "multi_label_classification", "regression"
CLASSES = {
    "bert": (transformers.BertConfig, transformers.BertForSequenceClassification),
    "roberta": (transformers.RobertaConfig, transformers.RobertaForSequenceClassification),
    "xlm-roberta": (transformers.XLMRobertaConfig, transformers.XLMRobertaForSequenceClassification),
    "deberta-v3": (transformers.DebertaV2Config, transformers.DebertaV2ForSequenceClassification),
}
# What makes a DeBERTa-v2 a DeBERTa-v3; plimsoll has these built in.
DEBERTA_V3 = dict(relative_attention=True, position_biased_input=False, pos_att_type=["p2c", "c2p"], share_att_key=True,
                  norm_rel_ebd="layer_norm", pooler_hidden_act="gelu", pooler_dropout=0.0)
NO_DROPOUT = dict(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
# Keys of plimsoll's recipe that say nothing of the architecture.
NOT_IN_CONFIG = ("family",)


def encoder(name, family, rows, length, **sizes):
    return Case(name, dict(family=family, **sizes, **NO_DROPOUT), dict(rows=rows, length=length))


def build(model):
    config_class, model_class = CLASSES[model["family"]]
    sizes = {k: v for k, v in model.items() if k not in NOT_IN_CONFIG}
    extra = DEBERTA_V3 if model["family"] == "deberta-v3" else {}
    config = config_class(**sizes, **extra, attn_implementation="eager")
    return spread(model_class(config))


def spread(network):
    """Weights so large that every layer matters, which the usual 0.02 would not give such narrow models, and not larger:
    f32 is to agree with f64. Biases and norms away from their 0 and 1, so that a forgotten one shows."""
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if parameter.dim() == 1:
                parameter.add_(0.2 * torch.randn_like(parameter))
            else:
                # The row of the padding stays 0.
                parameter.mul_(parameter.shape[1] ** -0.5 / network.config.initializer_range)
    return network


def inputs_of(case):
    """Row 0 is full, row 1 (if any) has one token, the others lie between; padding stands on the right."""
    model, rows, length = case.model, case.batch["rows"], case.batch["length"]
    lengths = golden.ragged_lengths(rows, length)
    mask = (torch.arange(length) < lengths[:, None]).long()
    pad = model["pad_token_id"]
    # Any id but the padding's, which RoBERTa would not count as a position.
    ids = (torch.randint(1, model["vocab_size"], (rows, length)) + pad) % model["vocab_size"]
    inputs = dict(ids=torch.where(mask == 1, ids, pad), mask=mask, weight=torch.ones(rows))
    if model.get("type_vocab_size", 0) > 1:
        inputs["types"] = torch.randint(model["type_vocab_size"], (rows, length)) * mask
    return inputs | labels_of(model, rows)


def labels_of(model, rows):
    labels = model["num_labels"]
    match model["problem_type"]:
        case "single_label_classification":
            return dict(label=torch.randint(labels, (rows,)))
        case "multi_label_classification":
            return dict(labels=torch.randint(2, (rows, labels)).float())
        case _:
            return dict(labels=torch.randn(rows, labels))


def keywords(inputs):
    """The inputs as transformers names them."""
    return dict(input_ids=inputs["ids"], attention_mask=inputs["mask"]) | (
        dict(token_type_ids=inputs["types"]) if "types" in inputs else {})


def loss(network, inputs):
    labels = inputs["label"] if "label" in inputs else inputs["labels"]
    output = network(**keywords(inputs), labels=labels)
    return output.logits, output.loss


def embedding(network, inputs):
    """The mean of the last hidden states over real tokens."""
    with torch.no_grad():
        hidden = network.base_model(**keywords(inputs)).last_hidden_state
    real = inputs["mask"][..., None].to(hidden.dtype)
    return (hidden * real).sum(1) / real.sum(1)


def compute(case):
    return record(build(case.model), inputs_of(case))


def record(initial, inputs):
    """What a golden file holds of any classifier of texts."""
    entries, own_error = golden.record(initial, inputs, loss)
    entries["embedding"] = embedding(*golden.in_precision(torch.float64, initial, inputs))
    return entries, own_error


def typical(family, **sizes):
    """Sizes whose keys every case must have, in the way of each family."""
    own = {
        "bert": dict(pad_token_id=0, type_vocab_size=2),
        "roberta": dict(pad_token_id=1, type_vocab_size=1),
        "xlm-roberta": dict(pad_token_id=1, type_vocab_size=1),
        "deberta-v3": dict(pad_token_id=0, type_vocab_size=0, position_buckets=4, max_relative_positions=16),
    }
    return own[family] | sizes


def named(family):
    def sized(name, rows, length, **sizes):
        return encoder(name, family, rows, length, **typical(family, **sizes))

    return lambda: [
        sized("tiny", 4, 9, vocab_size=29, hidden_size=12, num_hidden_layers=2, num_attention_heads=3, intermediate_size=20,
              max_position_embeddings=16, num_labels=3, problem_type=SINGLE, hidden_act="gelu", layer_norm_eps=1e-12),
        sized("labels", 3, 7, vocab_size=23, hidden_size=10, num_hidden_layers=1, num_attention_heads=5, intermediate_size=13,
              max_position_embeddings=11, num_labels=4, problem_type=MULTI, hidden_act="relu", layer_norm_eps=1e-5),
        sized("value", 5, 13, vocab_size=19, hidden_size=14, num_hidden_layers=1, num_attention_heads=1, intermediate_size=17,
              max_position_embeddings=19, num_labels=1, problem_type=REGRESSION, hidden_act="gelu", layer_norm_eps=1e-7),
    ]


def workloads(family):
    """As wide as a small model that people train, with a small vocabulary."""
    width = dict(vocab_size=500, hidden_size=384, num_hidden_layers=4, num_attention_heads=12, intermediate_size=1536,
                 max_position_embeddings=130, num_labels=5, problem_type=SINGLE, hidden_act="gelu", layer_norm_eps=1e-12)
    wide = width | (dict(position_buckets=32, max_relative_positions=130) if family == "deberta-v3" else {})
    return lambda: [encoder(f"{family}-workload", family, 4, 77, **typical(family, **wide))]


def random_case(family):
    def draw(rng, name):
        # Over few numbers a layer norm is nearly a sign, of which no gradient is worth comparing.
        width = rng.randint(8, 99)
        heads, length = heads_of(rng, width), rng.choice([2, *range(3, 50, 2)])
        problem = rng.choice([SINGLE, MULTI, REGRESSION])
        sizes = typical(family) | dict(
            vocab_size=rng.randint(11, 97), hidden_size=width, num_hidden_layers=rng.randint(1, 3), num_attention_heads=heads,
            intermediate_size=rng.randint(5, 90), num_labels=rng.randint(2, 7) if problem == SINGLE else rng.randint(1, 5),
            problem_type=problem, hidden_act=rng.choice(["gelu", "relu", "gelu", "silu"]),
            layer_norm_eps=rng.choice([1e-12, 1e-7, 1e-5]))
        match family:
            case "deberta-v3":
                sizes |= random_relative(rng, length)
            case "bert":
                sizes |= dict(max_position_embeddings=length + rng.randint(0, 5), type_vocab_size=rng.randint(1, 3))
            case _:
                pad = rng.randint(0, 3)
                sizes |= dict(pad_token_id=pad, max_position_embeddings=length + pad + 1 + rng.randint(0, 5))
        return encoder(name, family, rng.randint(2, 7), length, **sizes)

    return draw


def random_relative(rng, length):
    """Buckets that are logarithmic beyond half of them, and distances that go beyond the furthest."""
    buckets = 2 * rng.randint(1, 9)
    furthest = rng.randint(buckets // 2 + 2, max(buckets, length) + 9)
    return dict(position_buckets=buckets, max_relative_positions=furthest, max_position_embeddings=length + rng.randint(1, 9),
                type_vocab_size=rng.choice([0, 0, 2]))


FAMILIES = {family: dict(named=named(family), workload=workloads(family), random=random_case(family)) for family in CLASSES}

if __name__ == "__main__":
    transformers.logging.set_verbosity_error()
    golden.main(FAMILIES, compute, __doc__)
