"""Errors of what `rows.py` found against what was measured: `compare.py FOUND.jsonl …`."""
import json
import statistics
import sys


def line(title, rows, ghost, real):
    errors = [(row[ghost] / row[real] - 1) * 100 for row in rows]
    sizes = sorted(abs(error) for error in errors)
    at = lambda share: sizes[min(len(sizes) - 1, int(share * len(sizes)))]
    under = sum(error < -1 for error in errors)
    return (f"{title:32} {len(rows):4} rows: median {statistics.median(sizes):7.3f} %, p90 {at(0.9):6.2f}, p99 {at(0.99):6.2f}, "
            f"worst {max(errors, key=abs):+7.2f} %, under by more than 1 %: {under}")


def ranges(title, rows):
    """Where replays were joined (`ranges.py`): the most that is allocated, the middle and the top of what is reserved."""
    if not rows:
        return
    print(line(title + ", most allocated", rows, "allocated_highest_bytes", "peak_alloc"))
    print(line(title + ", middle reserved", rows, "middle_bytes", "peak_reserved"))
    covered = sum(row["highest_bytes"] >= row["peak_reserved"] for row in rows)
    exact = sum(row["exact"] for row in rows)
    print(f"{title}: the top covers what was reserved in {covered} of {len(rows)}; every address replayed in {exact}")


def main(files):
    rows = [json.loads(text) for file in files for text in open(file)]
    failed = [row for row in rows if "error" in row]
    rows = [row for row in rows if "error" not in row]
    for row in failed:
        print("failed:", {key: row[key] for key in ("model", "B", "T", "prec", "error")})
    groups = {"all": rows, "all but hybrid": [row for row in rows if row["model"] != "hybrid"]}
    for row in rows:
        groups.setdefault(row["model"], []).append(row)
    groups = {title: group for title, group in groups.items() if group}
    for title, group in groups.items():
        print(line(title + ", allocated", group, "ghost_alloc", "peak_alloc"))
    for title in ("all", "all but hybrid", "hybrid"):
        if groups.get(title):
            print(line(title + ", reserved", groups[title], "ghost_reserved", "peak_reserved"))
            ranges(title, [row for row in groups[title] if "highest_bytes" in row])
    seconds = sorted(row["seconds"] for row in rows)
    print(f"seconds a row: median {statistics.median(seconds)}, longest {seconds[-1]}")
    rows.sort(key=lambda row: -abs(row["ghost_alloc"] / row["peak_alloc"] - 1))
    for row in rows[:12]:
        settings = [row[key] for key in ("model", "B", "T", "prec", "ckpt", "attn", "opt", "accum")]
        print(f"{(row['ghost_alloc'] / row['peak_alloc'] - 1) * 100:+.2f} %", *settings, row["ghost_alloc"], row["peak_alloc"])


main(sys.argv[1:])
