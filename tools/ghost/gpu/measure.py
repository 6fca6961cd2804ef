"""Runs a program as it is on a real card and stops it after some optimizer steps, as ghost does:
`measure.py STEPS OUT.json PROGRAM [ARGUMENT …]`. Leaves what PyTorch's allocator says. With TRACE set to a file, also
every allocation and its end: sizes in order, freed ones as the negative number of the allocation."""
import json
import os
import runpy
import sys

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

steps, out = int(sys.argv[1]), sys.argv[2]
counts = {}
if os.environ.get("TRACE"):
    torch.cuda.memory._record_memory_history(max_entries=10**7, stacks="python", context=None)


def leave_trace(out):
    entries, places, count = [], {}, 0
    for event in torch.cuda.memory._snapshot()["device_traces"][0]:
        if event["action"] == "alloc":
            count += 1
            places[event["addr"]] = count
            entries.append(event["size"])
        elif event["action"] == "free_completed" and event["addr"] in places:
            entries.append(-places.pop(event["addr"]))
    with open(out, "w") as file:
        json.dump(entries, file)


def leave(why):
    torch.cuda.synchronize()
    if os.environ.get("TRACE"):
        leave_trace(os.environ["TRACE"])
    free, total = torch.cuda.mem_get_info()
    facts = dict(why=why, steps=max(counts.values(), default=0), allocated=torch.cuda.max_memory_allocated(),
                 reserved=torch.cuda.max_memory_reserved(), total=total, torch=torch.__version__)
    with open(out, "w") as file:
        json.dump(facts, file)
    sys.stdout.flush()
    os._exit(0)


def after(optimizer, *_):
    counts[id(optimizer)] = counts.get(id(optimizer), 0) + 1
    if counts[id(optimizer)] >= steps:
        leave("steps")


register_optimizer_step_post_hook(after)
sys.argv = sys.argv[3:]
sys.path.insert(0, os.path.dirname(os.path.abspath(sys.argv[0])))
runpy.run_path(sys.argv[0], run_name="__main__")
leave("end")
