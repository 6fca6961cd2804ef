"""Every program really and as a ghost, several at a time: `side_by_side.py GHOST OUT.jsonl PROGRAM …`. GHOST is the
`ghost_run` example. Real runs say what PyTorch's allocator took; both stop after three steps."""
import concurrent.futures
import json
import os
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))


def call(command, limit=240):
    started = time.time()
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit)
        return done.returncode, done.stdout, done.stderr[-600:], round(time.time() - started, 1)
    except subprocess.TimeoutExpired:
        return 124, "", "time limit", limit


def real(program):
    out = tempfile.mktemp(suffix=".json")
    code, _, words, seconds = call([sys.executable, os.path.join(HERE, "measure.py"), "3", out, program])
    found = json.load(open(out)) if os.path.exists(out) else dict(error=words, code=code)
    return dict(found, seconds=seconds)


def ghost(binary, program):
    code, text, words, seconds = call([binary, "--json", "0", "3", "--", sys.executable, program])
    if not text.strip().startswith("{"):
        return dict(error=words, code=code, seconds=seconds)
    found = json.loads(text)
    keys = ("end", "peak_allocated_bytes", "peak_reserved_bytes", "reserved_range", "guessed", "remarks", "lower_bound")
    return dict({key: found[key] for key in keys}, steps=len(found["steps"]), seconds=seconds)


def line(name, real, ghost):
    found = dict(program=name, real=real, ghost=ghost)
    if "allocated" in real and "peak_allocated_bytes" in ghost:
        found["allocated_error_percent"] = round((ghost["peak_allocated_bytes"] / real["allocated"] - 1) * 100, 3)
        found["reserved_error_percent"] = round((ghost["peak_reserved_bytes"] / real["reserved"] - 1) * 100, 3)
    return found


def main(binary, out, *programs):
    with concurrent.futures.ThreadPoolExecutor(6) as pool, open(out, "w") as file:
        runs = [(os.path.basename(program), pool.submit(real, program), pool.submit(ghost, binary, program))
                for program in programs]
        for name, measured, guessed in runs:
            found = line(name, measured.result(), guessed.result())
            file.write(json.dumps(found) + "\n")
            file.flush()
            print(name, found.get("allocated_error_percent"), found.get("reserved_error_percent"),
                  found["real"].get("error", ""), found["ghost"].get("error", ""), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
