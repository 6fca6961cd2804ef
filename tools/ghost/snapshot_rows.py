"""Leaves twenty snapshots of small trainings, half of them in the middle of a step: `snapshot_rows.py FOLDER`, by ghost. Beside
each lies what PyTorch's own counters said."""
import json
import os
import sys

import rows
import torch

BASE = dict(T=128, prec="fp32", ckpt=0, attn="sdpa", opt="adamw", accum=1)
TRAININGS = [
    dict(BASE, model="bert-base-uncased", B=8),
    dict(BASE, model="bert-base-uncased", B=5, T=77, prec="amp-bf16", ckpt=1, attn="eager", opt="adamw-fused"),
    dict(BASE, model="deberta-v3-base", B=4, attn="eager", prec="amp-fp16", opt="sgd-momentum"),
    dict(BASE, model="t5-small", B=8, prec="bf16", opt="adafactor"),
    dict(BASE, model="t5-small", B=3, T=200, ckpt=1, accum=2),
    dict(BASE, model="gpt2", B=4, accum=2),
    dict(BASE, model="gpt2", B=2, T=300, prec="amp-fp16", opt="adafactor"),
    dict(BASE, model="hybrid", B=16, T=60),
    dict(BASE, model="hybrid", B=48, T=60, prec="amp-bf16", opt="sgd-momentum"),
    dict(BASE, model="mu-sota", B=2, prec="amp-fp16", attn="eager"),
]


def leave(folder, name):
    torch.cuda.memory._dump_snapshot(os.path.join(folder, f"{name}.pickle"))
    with open(os.path.join(folder, f"{name}.json"), "w") as file:
        json.dump(dict(peak_allocated_bytes=torch.cuda.max_memory_allocated(), peak_reserved_bytes=torch.cuda.max_memory_reserved(),
                       allocated_bytes=torch.cuda.memory_allocated(), reserved_bytes=torch.cuda.memory_reserved()), file)


def main(folder):
    forward, calls = rows.loss_of, []

    def watched(*arguments):
        loss = forward(*arguments)
        calls.append(1)
        if len(calls) == 2:
            leave(folder, f"{number:02}-middle")
        return loss

    rows.loss_of = watched
    for number, row in enumerate(TRAININGS):
        torch.cuda.memory._record_memory_history(enabled=None)
        rows.clean()
        # Of allocations alone: a stack that is gathered while a checkpoint's own exception passes loses that exception.
        torch.cuda.memory._record_memory_history(context="alloc", stacks="python")
        calls.clear()
        rows.train(row)
        leave(folder, f"{number:02}-end")


main(sys.argv[1])
