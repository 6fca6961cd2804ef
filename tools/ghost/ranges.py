"""Joins what `rows.py` found with what `replay_many` says of the traces it left: `ranges.py FOUND.jsonl REPLAYS.jsonl`."""
import json
import os
import sys


def main(found, replays):
    ranges = {}
    for line in open(replays):
        one = json.loads(line)
        number = int(os.path.basename(one["file"]).split(".")[0])
        replay = one["replay"]
        allocated = {"allocated_" + name: value for name, value in replay["allocated_range"].items()}
        ranges[number] = dict(exact=replay["exact"], replay_alloc=replay["peak_allocated_bytes"],
                              replay_reserved=replay["peak_reserved_bytes"], **replay["reserved_range"], **allocated)
    for line in open(found):
        row = json.loads(line)
        row.update(ranges.get(row["number"], {}))
        print(json.dumps(row))


main(*sys.argv[1:])
