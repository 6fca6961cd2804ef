"""Trains small models under budgets set by `set_per_process_memory_fraction`, each a little above or below what it
takes, and writes which of them died and with which words: `budgets.py OUT.jsonl`. To be run on a real card and by
`plimsoll ghost --steps 0`; both must say the same. A budget is a share of the first unlimited run's peak *allocated*
or *reserved* on the card at hand, kept in BUDGETS so that both runs see the same bytes."""
import gc
import json
import os
import re
import sys

import torch
import transformers
from torch import nn

transformers.logging.set_verbosity_error()


def bert(layers, width):
    config = transformers.BertConfig(hidden_size=width, num_hidden_layers=layers, num_attention_heads=width // 64,
                                     intermediate_size=4 * width, vocab_size=30522)
    return transformers.BertForSequenceClassification(config)


def gpt(layers, width):
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(n_layer=layers, n_embd=width, n_head=width // 64))


def perceptron(layers, width):
    return nn.Sequential(*[part for _ in range(layers) for part in (nn.Linear(width, width), nn.GELU())])


# Model, batch, length, precision, optimizer.
TRAININGS = [
    ("bert-4", lambda: bert(4, 512), 16, 128, "fp32", "adamw"),
    ("bert-6", lambda: bert(6, 768), 16, 256, "bf16", "adamw-fused"),
    ("gpt-4", lambda: gpt(4, 512), 8, 256, "fp32", "sgd"),
    ("gpt-6", lambda: gpt(6, 768), 4, 512, "bf16", "adamw"),
    ("gpt-2", lambda: gpt(2, 1024), 2, 1024, "fp16", "adamw-fused"),
    ("perceptron-8", lambda: perceptron(8, 2048), 512, 1, "fp32", "adamw"),
    ("perceptron-4", lambda: perceptron(4, 4096), 4096, 1, "bf16", "sgd"),
    ("bert-2", lambda: bert(2, 1024), 64, 384, "fp16", "adamw"),
]
SHARES = [("allocated", 0.97), ("allocated", 0.995), ("allocated", 1.01), ("reserved", 0.985), ("reserved", 1.002)]


def loss_of(name, model, batch, length):
    if name.startswith("perceptron"):
        return model(torch.randn(batch, model[0].in_features, device="cuda")).float().pow(2).mean()
    ids = torch.randint(5, 30000, (batch, length), device="cuda")
    labels = ids if name.startswith("gpt") else ids[:, 0] % 2
    return model(input_ids=ids, labels=labels).loss


def train(name, make, batch, length, precision, optimizer):
    with torch.device("cuda"):
        model = make().train()
    kinds = {"adamw": torch.optim.AdamW, "adamw-fused": lambda weights: torch.optim.AdamW(weights, fused=True),
             "sgd": lambda weights: torch.optim.SGD(weights, 0.1, momentum=0.9)}
    optimizer = kinds[optimizer](model.parameters())
    half = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(precision)
    for _ in range(3):
        with torch.autocast("cuda", half or torch.bfloat16, enabled=half is not None):
            loss = loss_of(name, model, batch, length)
        loss.backward()
        del loss
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


def clean():
    gc.collect()
    torch._C._cuda_clearCublasWorkspaces()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()


def attempt(training):
    clean()
    try:
        train(*training)
        return dict(fits=True)
    except torch.OutOfMemoryError as error:
        words = str(error)
    wanted = re.search(r"Tried to allocate ([\d.]+ \w+)", words)
    return dict(fits=False, wanted=wanted and wanted.group(1), words=words)


def unlimited():
    """Peaks without a budget: measured once, then the same bytes for everybody."""
    file = os.environ.get("BUDGETS")
    if file and os.path.exists(file):
        return json.load(open(file))
    found = {}
    for training in TRAININGS:
        attempt(training)
        found[training[0]] = dict(allocated=torch.cuda.max_memory_allocated(), reserved=torch.cuda.max_memory_reserved())
    if file:
        json.dump(found, open(file, "w"))
    return found


def main(out):
    total = torch.cuda.mem_get_info()[1]
    peaks = unlimited()
    with open(out, "w") as file:
        for training in TRAININGS:
            for of, share in SHARES:
                budget = int(peaks[training[0]][of] * share)
                clean()
                torch.cuda.set_per_process_memory_fraction(budget / total)
                file.write(json.dumps(dict(training=training[0], of=of, share=share, budget=budget, **attempt(training))) + "\n")
                file.flush()
    torch.cuda.set_per_process_memory_fraction(1.0)


if __name__ == "__main__":
    main(sys.argv[1])
