"""What the two processes trained that measured `torch-memory-h200.jsonl`, in their order: also what is not in the file.

A process trained what `torch_memory.py` draws, one after another, and what a training leaves behind (cuDNN's state for
dropout, the segment around it) is there for all that follow. The file has 372 of the 648 that were measured, and none of
those that failed, but the draws can be repeated: with these seeds and these 18 models, of which `torch_memory.py` still
names 13, every row of the file comes out in its place. Which the other five are, the notes of that measurement say (41
trainings of CLIP, 80 of GPT-2 and Llama, RoBERTa-large); FLAN-T5-large, GPT-2-medium and the Llama's sizes are guesses.
They count by what they leave behind alone.

To the byte only where torchaudio is installed, as it was there: transformers imports it while a model is being made on the
card, where a constant of it then stays. And by `plimsoll ghost --card h200`: some that are not in the file did not fit, which
`retries` counts.
"""
import random
from itertools import islice

ENCODERS = ["bert-base-uncased", "bert-large-uncased", "roberta-base", "roberta-large", "xlm-roberta-base", "deberta-v3-base",
            "deberta-v3-large"]
OTHERS = ["t5-small", "t5-base", "flan-t5-base", "flan-t5-large", "flan-t5-xl", "clip-vit-base-patch32", "gpt2", "gpt2-medium",
          "llama-1b"]
# The seed of each process, the models it drew from, and those that failed in it with their first batch.
PROCESSES = [
    (1, [*ENCODERS, *OTHERS, "hybrid", "mu-sota"], {*ENCODERS, "hybrid"}),
    (2, [*ENCODERS, "hybrid"], set()),
]
GRID = dict(B=[1, 2, 4, 8, 12, 16, 24, 32, 48, 64], T=[64, 128, 192, 256, 320, 384, 480, 512],
            prec=["fp32", "amp-bf16", "amp-fp16", "bf16"], ckpt=[0, 0, 1], attn=["sdpa", "sdpa", "eager"],
            opt=["adamw", "adamw-fused", "sgd-momentum", "adafactor"], accum=[1, 1, 2])
# Trained ahead of what was drawn, for traces.
FIRST = [
    ("bert-base-uncased", 16, 128, "amp-bf16", 0, "sdpa", "adamw", 1),
    ("flan-t5-base", 8, 192, "bf16", 1, "eager", "adafactor", 2),
    ("hybrid", 64, 60, "fp32", 0, "eager", "adamw-fused", 1),
    ("clip-vit-base-patch32", 24, 77, "amp-fp16", 0, "sdpa", "sgd-momentum", 2),
    ("deberta-v3-base", 12, 320, "fp32", 1, "eager", "adamw", 1),
    ("gpt2", 4, 512, "amp-bf16", 0, "eager", "adamw", 2),
]


def drawn(seed, models):
    """As `torch_memory.py` draws, without an end."""
    for values in FIRST:
        if values[0] in models:
            yield dict(zip(("model", *GRID), values))
    draw = random.Random(seed)
    while True:
        row = dict(model=draw.choice(models), **{key: draw.choice(values) for key, values in GRID.items()})
        if row["model"] == "hybrid":
            row.update(T=60, ckpt=0)
        if row["model"] == "mu-sota":
            row.update(ckpt=0, attn="eager", B=min(row["B"], 16))
        if row["model"].startswith("clip"):
            row["T"] = 77
        if row["model"].startswith("deberta"):
            row["attn"] = "eager"
        yield row


def of(process, measured):
    """The trainings of a process up to the last that is in the file: a measured row as it is, another as it was drawn, with 0
    steps if it failed."""
    seed, models, failed = PROCESSES[process]
    rows = iter(measured)
    row = next(rows)
    for training in islice(drawn(seed, models), 10_000):
        if training.items() <= row.items():
            yield row
            row = next(rows, None)
            if row is None:
                return
        else:
            yield dict(training, steps=0) if training["model"] in failed else training
    raise ValueError(f"row {row.get('number')} was not drawn where it stands")
