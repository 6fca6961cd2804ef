"""Every training of a file as a ghost in a process of its own, against what was measured; those that differ most also
really, in processes of their own: whether it is the ghost that is off, or the card against itself.
`each.py GHOST_RUN MEASURED.jsonl OUT.jsonl SECONDS`, on a machine with a GPU; without one nothing is trained really.
"""
import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

ROWS = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "rows.py")
GHOSTS, REAL = os.cpu_count(), 6
SAID_AGAIN = 0.6  # percent


def train(before, folder, row, name):
    asked, answer = (os.path.join(folder, f"{row['number']}.{name}.{kind}") for kind in ("asked", "answer"))
    with open(asked, "w") as file:
        file.write(json.dumps(row) + "\n")
    environment = dict(os.environ, OMP_NUM_THREADS="1", TOKENIZERS_PARALLELISM="false")
    subprocess.run([*before, sys.executable, ROWS, asked, answer], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=200)
    found = json.loads(open(answer).readline())
    return {f"{name}_allocated": found["ghost_alloc"], f"{name}_reserved": found["ghost_reserved"], f"{name}_error": found.get("error")}


def tried(before, folder, row, name, end):
    if time.time() > end:
        return dict(row, **{f"{name}_error": "no time"})
    try:
        return row | train(before, folder, row, name)
    except Exception as error:
        return dict(row, **{f"{name}_error": repr(error)[:200]})


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
            again = sorted((row for row in rows if abs(off(row)) > SAID_AGAIN), key=lambda row: -abs(off(row)))
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
