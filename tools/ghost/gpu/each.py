"""Every training of a file as a ghost in a process of its own, against what was measured; those that differ most also
really, in processes of their own: whether it is the ghost that is off, or the card against itself.
`each.py GHOST_RUN MEASURED.jsonl OUT.jsonl SECONDS`, on a machine with a GPU; without one nothing is trained really.
"""
import json
import os
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

from fresh import tried

GHOSTS, REAL = os.cpu_count(), 6
# Percent from which a row is trained really, too: a dozen of 372.
TRAINED_AGAIN = 0.6


def off(row):
    return (row["ghost_allocated"] / row["peak_alloc"] - 1) * 100 if row.get("ghost_allocated") else 0


def main(ghost, measured, out, seconds):
    end = time.time() + float(seconds)
    keys = ("model", "B", "T", "prec", "ckpt", "attn", "opt", "accum", "peak_alloc", "peak_reserved")
    rows = [json.loads(line) for line in open(measured)]
    rows = [dict({key: row[key] for key in keys}, number=number) for number, row in enumerate(rows)]
    before = [os.path.realpath(ghost), "0", "0", "--"]
    with tempfile.TemporaryDirectory() as folder:
        with ThreadPoolExecutor(GHOSTS) as pool:
            rows = list(pool.map(lambda row: tried(before, folder, row, "ghost", end), rows))
        if os.path.exists("/dev/nvidiactl"):
            again = sorted((row for row in rows if abs(off(row)) > TRAINED_AGAIN), key=lambda row: -abs(off(row)))
            with ThreadPoolExecutor(REAL) as pool:
                for row in pool.map(lambda row: tried([], folder, row, "real", end), again):
                    rows[row["number"]] = row
    with open(out, "w") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    told = [off(row) for row in rows if row.get("ghost_allocated")]
    print(f"{len(told)} of {len(rows)}: lowest {min(told):+.2f} %, highest {max(told):+.2f} %, beyond 1 %: {sum(abs(error) > 1 for error in told)}")
    for row in rows:
        if row.get("real_allocated"):
            card = (row["real_allocated"] / row["peak_alloc"] - 1) * 100
            print(f"{row['number']} {row['model']}: ghost {off(row):+.3f} %, the card again {card:+.3f} %, ghost against it {row['ghost_allocated'] - row['real_allocated']} bytes")


main(*sys.argv[1:])
