"""Trainings as users start them, each in a process of its own, really and as ghosts, compared byte by byte:
`fresh.py GHOST_RUN MEASURED.jsonl OUT.jsonl EVERY SECONDS [MODEL]`, on a machine with a GPU. Rows that there is no time
for are written, too, and say so.
"""
import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

ROWS = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "rows.py")
AT_ONCE = 7


def train(before, folder, row, name):
    """What the allocator says of a row in a process of its own, `before` in front of it, with `name` before each word."""
    asked, answer = (os.path.join(folder, f"{row['number']}.{name}.{kind}") for kind in ("asked", "answer"))
    with open(asked, "w") as file:
        file.write(json.dumps(row) + "\n")
    environment = dict(os.environ, OMP_NUM_THREADS="1")
    command = [*before, sys.executable, ROWS, asked, answer]
    subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=200)
    found = json.loads(open(answer).readline())
    return {f"{name}_allocated": found["ghost_alloc"], f"{name}_reserved": found["ghost_reserved"], f"{name}_error": found.get("error")}


def tried(before, folder, row, name, end):
    """The row with what was found, or with why nothing was."""
    if time.time() > end:
        return dict(row, error="no time")
    try:
        return row | train(before, folder, row, name)
    except Exception as error:
        return dict(row, error=repr(error)[:200])


def both(before, folder, row, end):
    row = tried([], folder, row, "real", end)
    return row if "error" in row else tried(before, folder, row, "ghost", end)


def main(ghost, measured, out, every, seconds, model=None):
    end, before = time.time() + float(seconds), [os.path.realpath(ghost), "0", "0", "--"]
    rows = [dict(json.loads(line), number=number) for number, line in enumerate(open(measured))]
    rows = [row for row in rows if model in (None, row["model"])][:: int(every)]
    with tempfile.TemporaryDirectory() as folder, open(out, "w") as file, ThreadPoolExecutor(AT_ONCE) as pool:
        found = []
        for row in pool.map(lambda row: both(before, folder, row, end), rows):
            found.append(row)
            file.write(json.dumps(row) + "\n")
            file.flush()
    told = [row for row in found if "ghost_allocated" in row and not row["real_error"] and not row["ghost_error"]]
    for key in ("allocated", "reserved"):
        errors = [(row[f"ghost_{key}"] / row[f"real_{key}"] - 1) * 100 for row in told]
        same = sum(error == 0 for error in errors)
        print(f"{key}: {same} of {len(told)} told ({len(found)} asked) to the byte, lowest {min(errors):+.2f} %, highest {max(errors):+.2f} %")


if __name__ == "__main__":
    main(*sys.argv[1:])
