"""Some small trainings of `rows.py`, and what PyTorch's allocator says: `small_rows.py OUT.jsonl`, by ghost."""
import json
import sys
import time

import rows
import torch

BASE = dict(T=128, prec="fp32", ckpt=0, attn="sdpa", opt="adamw", accum=1)
SMALL = [
    dict(BASE, model="bert-base-uncased", B=8),
    dict(BASE, model="bert-base-uncased", B=8, prec="amp-bf16", ckpt=1, attn="eager", opt="adamw-fused"),
    dict(BASE, model="deberta-v3-base", B=4, attn="eager", prec="amp-fp16", opt="sgd-momentum"),
    dict(BASE, model="t5-small", B=8, prec="bf16", opt="adafactor"),
    dict(BASE, model="gpt2", B=4, accum=2),
    dict(BASE, model="hybrid", B=16, T=60),
    dict(BASE, model="mu-sota", B=2, prec="amp-fp16", attn="eager"),
]


def main(out):
    with open(out, "w") as file:
        for row in SMALL:
            rows.clean()
            started, found = time.time(), dict(row, torch=torch.__version__)
            try:
                rows.train(row)
                found.update(allocated=torch.cuda.max_memory_allocated(), reserved=torch.cuda.max_memory_reserved())
            except Exception as error:
                found["error"] = repr(error)[:300]
            file.write(json.dumps(dict(found, seconds=round(time.time() - started, 2))) + "\n")
            file.flush()


main(sys.argv[1])
