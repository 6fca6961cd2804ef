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
    asked, answer = (os.path.join(folder, f"{row['number']}.{name}.{kind}") for kind in ("asked", "answer"))
    with open(asked, "w") as file:
        file.write(json.dumps(row) + "\n")
    subprocess.run([*before, sys.executable, ROWS, asked, answer], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=150)
    found = json.loads(open(answer).readline())
    return found["ghost_alloc"], found["ghost_reserved"], found.get("error")


def both(ghost, folder, row, end):
    if time.time() > end:
        return dict(row, error="no time")
    try:
        real, stood_in = train([], folder, row, "real"), train([ghost, "0", "0", "--"], folder, row, "ghost")
    except Exception as error:
        return dict(row, error=repr(error)[:200])
    keys = ("allocated", "reserved", "error")
    return row | {f"real_{key}": value for key, value in zip(keys, real)} | {f"ghost_{key}": value for key, value in zip(keys, stood_in)}


def main(ghost, measured, out, every, seconds, model=None):
    end = time.time() + float(seconds)
    rows = [dict(json.loads(line), number=number) for number, line in enumerate(open(measured))]
    rows = [row for row in rows if model in (None, row["model"])][:: int(every)]
    with tempfile.TemporaryDirectory() as folder, open(out, "w") as file, ThreadPoolExecutor(AT_ONCE) as pool:
        found = []
        for row in pool.map(lambda row: both(os.path.realpath(ghost), folder, row, end), rows):
            found.append(row)
            file.write(json.dumps(row) + "\n")
            file.flush()
    told = [row for row in found if "real_allocated" in row and not row["real_error"] and not row["ghost_error"]]
    for key in ("allocated", "reserved"):
        errors = [(row[f"ghost_{key}"] / row[f"real_{key}"] - 1) * 100 for row in told]
        same = sum(error == 0 for error in errors)
        print(f"{key}: {same} of {len(told)} told ({len(found)} asked) to the byte, lowest {min(errors):+.2f} %, highest {max(errors):+.2f} %")


main(*sys.argv[1:])
