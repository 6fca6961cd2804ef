"""What PyTorch's own viewer (`torch/cuda/_memory_viz.py`) and its counters say of snapshots, as JSON: `snapshot_totals.py FILE …`."""
import importlib.util
import json
import os
import pickle
import re
import sys


def viewer():
    """By its file: torch itself cannot be imported where NVIDIA's libraries are not."""
    folder = os.path.dirname(importlib.util.find_spec("torch").origin)
    spec = importlib.util.spec_from_file_location("memory_viz", os.path.join(folder, "cuda", "_memory_viz.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


viz = viewer()
# The viewer rounds what it prints to a tenth of a unit; totals are wanted to the byte.
viz.Bytes = int


def totals(name):
    with open(name, "rb") as file:
        snapshot = pickle.load(file)
    words = viz.segsum(snapshot)
    number = lambda title: int(re.search(rf"^{title}: (\d+)", words, re.MULTILINE).group(1))
    with open(name.replace(".pickle", ".json")) as file:
        counters = json.load(file)
    return dict(counters, reserved_bytes=number("total_reserved"), requested_bytes=number("total_allocated"),
                allocated_bytes=sum(map(viz.calc_active, snapshot["segments"])),
                free_in_pieces_bytes=sum(block["size"] for segment in snapshot["segments"] for block in segment["blocks"]
                                         if block["state"] == "inactive"))


print(json.dumps([totals(name) for name in sys.argv[1:]]))
