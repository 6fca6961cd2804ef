"""How often a ghost's verdict was the card's: `verdicts.py REAL.jsonl GHOST.jsonl`."""
import json
import sys

real, ghost = ([json.loads(line) for line in open(file)] for file in sys.argv[1:3])
right = same = died = 0
for a, b in zip(real, ghost):
    right += a["fits"] == b["fits"]
    if not a["fits"] and not b["fits"]:
        died += 1
        same += a["wanted"] == b["wanted"]
    if a["fits"] != b["fits"] or a.get("wanted") != b.get("wanted"):
        print(a["training"], a["of"], a["share"], "real", a["fits"], a.get("wanted"), "ghost", b["fits"], b.get("wanted"))
print(f"verdict right in {right} of {len(real)} (ghost answered {len(ghost)}); of {died} that died in both, the same size in {same}")
