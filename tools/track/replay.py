#!/usr/bin/env python3
"""Replays a run's events through wandb or trackio, which have the same interface.

    plimsoll export-events RUN | tools/track/replay.py wandb --project NAME [--mode offline]
    tools/track/replay.py trackio --project NAME --events RUN/events.jsonl

W&B's own file format is not documented and changes; its library is the way in. Offline runs are sent later with
`wandb sync`. The key is WANDB_API_KEY of the environment, as the library has it, or else of .env in the working directory. A run that goes on is replayed up to now; replayed
again, it becomes a second run.
"""

import argparse
import importlib
import json
import os
import sys

# Words and places; everything else that is a number is a metric.
NOT_METRICS = {"event", "time", "step", "skipped", "best", "samples"}
GROUPS = {"step": "train", "evaluation": "eval", "device": "system"}


def read(stream):
    """The events; a line that is torn is passed over."""
    for line in stream:
        try:
            yield json.loads(line)
        except ValueError:
            continue


def numbers(event):
    group = GROUPS.get(event["event"])
    if group is None:
        return {}
    values = {key: value for key, value in event.items() if key not in NOT_METRICS}
    return {f"{group}/{key}": value for key, value in values.items() if isinstance(value, (int, float))}


class Replay:
    def __init__(self, tracker, options):
        self.tracker, self.options, self.run, self.end = tracker, options, None, None

    def start(self, event):
        if self.run is not None:
            return  # resumed: the same run goes on
        arguments = {"project": self.options.project, "name": self.options.name or event["recipe"]}
        if self.options.mode:
            arguments["mode"] = self.options.mode
        self.run = self.tracker.init(config={k: v for k, v in event.items() if k not in ("event", "time")}, **arguments)

    def take(self, event):
        kind = event.get("event")
        if kind == "started":
            self.start(event)
        elif kind in ("finished", "failed"):
            self.end = event
        elif self.run is not None and (values := numbers(event)):
            if "time" in event:
                values["_timestamp"] = event["time"]
            self.tracker.log(values, step=event["step"])

    def close(self):
        """What a run ended with goes into its summary, where the tracker has one."""
        failed = self.end is not None and self.end["event"] == "failed"
        if self.end is not None and hasattr(self.run, "summary"):
            for key, value in self.end.items():
                if isinstance(value, (int, float, str)) and key not in ("event", "time"):
                    self.run.summary[f"run/{key}"] = value
        # Only wandb knows of exit codes.
        try:
            self.tracker.finish(exit_code=1 if failed else 0)
        except TypeError:
            self.tracker.finish()


def key_of_file(path=".env", name="WANDB_API_KEY"):
    """The environment goes first, as it does for plimsoll itself."""
    if name in os.environ or not os.path.isfile(path):
        return
    with open(path, encoding="utf-8") as file:
        lines = (line.strip().removeprefix("export ").partition("=") for line in file)
        found = next((value.strip().strip("\"'") for key, equals, value in lines if equals and key.strip() == name), "")
    if found:
        os.environ[name] = found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tracker", choices=["wandb", "trackio"])
    parser.add_argument("--project", default="plimsoll")
    parser.add_argument("--name", help="of the run (default: the recipe's)")
    parser.add_argument("--mode", help="wandb's: online, offline")
    parser.add_argument("--events", help="events.jsonl (default: standard input)")
    options = parser.parse_args()
    try:
        tracker = importlib.import_module(options.tracker)
    except ImportError:
        sys.exit(f"error: {options.tracker} is not installed\n  hint: pip install {options.tracker}")
    key_of_file()
    replay = Replay(tracker, options)
    with open(options.events, encoding="utf-8") if options.events else sys.stdin as stream:
        for event in read(stream):
            replay.take(event)
    if replay.run is None:
        sys.exit("error: these events have no beginning\n  hint: give all of them: `plimsoll export-events RUN`")
    replay.close()


if __name__ == "__main__":
    main()
