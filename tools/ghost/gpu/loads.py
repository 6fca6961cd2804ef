"""What the driver takes beside PyTorch's segments, operation by operation, and where the segments lie: how the constants of
`crates/ghost-cuda` were found. `loads.py MEASURED.jsonl OUT.jsonl NUMBER …`, on a machine whose GPU nobody else uses.

Each row is trained in a process of its own. `loads` has the operation, the MiB that came or went with it, what PyTorch had
reserved and how many segments it had asked for; `segments` has what was asked for (a) and given back (f), and where it lay.
"""
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def watch(row):
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    import rows

    loads = []

    def taken_beside():
        free, total = torch.cuda.mem_get_info()
        return total - free - torch.cuda.memory_reserved()

    class Watch(TorchDispatchMode):
        before = taken_beside()

        def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
            answer = operation(*args, **(kwargs or {}))
            now = taken_beside()
            if now != Watch.before:
                asked = torch.cuda.memory_stats()["num_device_alloc"]
                loads.append([str(operation), (now - Watch.before) >> 20, torch.cuda.memory_reserved() >> 20, asked])
                Watch.before = now
            return answer

    torch.cuda.memory._record_memory_history(enabled="all", context=None, stacks="python", max_entries=5000000)
    with Watch():
        rows.train(row)
    kinds = {"segment_alloc": "a", "segment_free": "f"}
    trace = torch.cuda.memory._snapshot()["device_traces"][0]
    segments = [[kinds[step["action"]], step["size"], step["addr"]] for step in trace if step["action"] in kinds]
    print(json.dumps(dict(number=row["number"], model=row["model"], loads=loads, segments=segments,
                          allocated=torch.cuda.max_memory_allocated())))


def main(measured, out, *numbers):
    found = [dict(json.loads(line), number=number) for number, line in enumerate(open(measured))]
    with open(out, "w") as file:
        # One at a time: what is free on the card is everybody's.
        for number in map(int, numbers):
            child = [sys.executable, os.path.abspath(__file__), "--row", json.dumps(found[number])]
            done = subprocess.run(child, capture_output=True, text=True)
            file.write(done.stdout or json.dumps(dict(number=number, error=done.stderr[-400:])) + "\n")
            file.flush()


if sys.argv[1] == "--row":
    watch(json.loads(sys.argv[2]))
else:
    main(*sys.argv[1:])
