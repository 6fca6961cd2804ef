#!/usr/bin/env python3
"""One study, worked on by Optuna and by plimsoll in turn: both must read all that either wrote.

    interop.py --tune BINARY --storage journal:FILE | sqlite:FILE | postgresql://… [--kills N] [--workers N] [--plimsoll P]

BINARY is the example `tune` of plimsoll-tune. Steps: we write, Optuna reads and goes on, we go on; then workers are
killed at random moments, and in the end every trial must have ended exactly once. With --plimsoll, a coordinator and
workers of the real command train real (tiny) models on the same storage, and are killed; then Optuna and its dashboard
open the study.
"""
import argparse
import atexit
import json
import math
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import optuna
from optuna.storages import JournalStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock
from optuna.trial import TrialState

optuna.logging.set_verbosity(optuna.logging.ERROR)
STUDY = "interop µ"
STARTED = []


def begin(command, **how):
    """Starts a process that does not outlive this one, however it ends."""
    STARTED.append(subprocess.Popen(command, **how))
    return STARTED[-1]


def end_all():
    for process in STARTED:
        if process.poll() is None:
            process.kill()
            process.wait()


atexit.register(end_all)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))


def open_optuna(address, open_lock=False):
    if address.startswith("journal:"):
        path = address.removeprefix("journal:")
        return JournalStorage(JournalFileBackend(path, JournalFileOpenLock(path) if open_lock else None))
    if address.startswith("sqlite:"):
        return RDBStorage("sqlite:///" + address.removeprefix("sqlite:"), heartbeat_interval=60)
    return RDBStorage(address.replace("postgresql:", "postgresql+psycopg2:", 1), heartbeat_interval=60)


def ours(tune, *arguments):
    done = subprocess.run([tune, *map(str, arguments)], capture_output=True, text=True, timeout=600)
    if done.returncode:
        sys.exit(f"tune {arguments[0]} failed: {done.stderr}")
    return done.stdout


def objective(trial):
    kind = trial.suggest_categorical("kind", ["sgd", "adamw", None])
    x = trial.suggest_float("x", -5.0, 5.0)
    lr = trial.suggest_float("lr", 1e-6, 1e-1, log=True)
    length = trial.suggest_int("length", 128, 512, step=32)
    if kind == "sgd":
        trial.suggest_float("momentum", 0.0, 0.9, step=0.1)
    trial.set_user_attr("odd", [math.nan, math.inf, "ü\n", {"a": None}])
    for step in range(4):
        trial.report([1.0, math.nan, math.inf, -math.inf][step], step)
    if trial.number % 5 == 0:
        raise optuna.TrialPruned
    if trial.number % 9 == 1:
        return math.inf
    return (x - 1) ** 2 + (math.log(lr) + 7) ** 2 + length / 512


def same(a, b):
    if isinstance(a, float) and isinstance(b, float) and math.isnan(a) and math.isnan(b):
        return True
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b


def compare(tune, address):
    """Every trial as both sides see it."""
    study = optuna.load_study(study_name=STUDY, storage=open_optuna(address))
    theirs = study.get_trials()
    mine = json.loads(ours(tune, "show", address, STUDY))
    assert len(theirs) == len(mine), (len(theirs), len(mine))
    for their, own in zip(theirs, mine):
        seen = {
            "number": their.number, "state": their.state.value, "values": their.values, "params": their.params,
            "intermediate": {str(step): value for step, value in sorted(their.intermediate_values.items())},
            "user_attrs": their.user_attrs,
        }
        kept = {key: own[key] for key in seen}
        assert same(seen, kept), f"trial {their.number}:\n{seen}\n{kept}"
        for key, moment in (("started", their.datetime_start), ("completed", their.datetime_complete)):
            if moment is not None:
                written = optuna_time(own[key])
                assert abs(written - moment.timestamp()) < 1e-3, (key, own[key], moment)
    return study, theirs


def optuna_time(text):
    from datetime import datetime
    return datetime.fromisoformat(text).timestamp()


def in_turn(tune, address):
    ours(tune, "optimize", address, STUDY, 15)
    study, trials = compare(tune, address)
    assert len(trials) == 15 and math.isfinite(study.best_value)
    assert any(math.isnan(v) for t in trials for v in t.intermediate_values.values())
    study.optimize(objective, n_trials=15)
    compare(tune, address)
    study.enqueue_trial({"x": 1.25, "kind": "adamw"})
    ours(tune, "optimize", address, STUDY, 45)
    study, trials = compare(tune, address)
    assert len(trials) == 45
    enqueued = [t for t in trials if t.params.get("x") == 1.25]
    assert len(enqueued) == 1 and enqueued[0].params["kind"] == "adamw" and enqueued[0].state.is_finished()
    ours(tune, "enqueue", address, STUDY, -1.5)
    if address.startswith("journal:"):
        study = optuna.load_study(study_name=STUDY, storage=open_optuna(address, open_lock=True))
    study.optimize(objective, n_trials=5)
    _, trials = compare(tune, address)
    assert trials[45].params["x"] == -1.5 and len(trials) == 50
    print(f"  in turn: {len(trials)} trials, the same to both sides")


def with_kills(tune, address, workers, kills, wanted):
    """Workers are killed and started again until the study is done."""
    rng = random.Random(1)
    start = lambda: begin([tune, "optimize", address, STUDY, str(wanted), "15"], stderr=subprocess.PIPE)
    running = [start() for _ in range(workers)]
    done = 0
    while done < kills:
        time.sleep(rng.uniform(0.05, 0.6))
        index = rng.randrange(workers)
        if running[index].poll() is None:
            os.kill(running[index].pid, signal.SIGKILL)
            running[index].wait()
            done += 1
        elif running[index].returncode > 0:
            sys.exit(f"a worker failed: {running[index].stderr.read().decode()}")
        elif all(worker.poll() == 0 for worker in running):
            break
        running[index] = start()
    for worker in running:
        if worker.wait(timeout=600) != 0:
            sys.exit(f"a worker failed: {worker.stderr.read().decode()}")
    if address.startswith("journal:"):
        with open(address.removeprefix("journal:"), "rb") as file:
            lines = file.read().split(b"\n")
        assert lines[-1] == b"" and all(json.loads(line) for line in lines[:-1])
    _, trials = compare(tune, address)
    ended = [t for t in trials if t.state.is_finished()]
    assert len(ended) == len(trials) == wanted, (len(ended), len(trials), wanted)
    assert [t.number for t in trials] == list(range(len(trials)))
    assert not any(t.state == TrialState.FAIL for t in trials)
    print(f"  {done} kills of {workers} workers: {len(trials)} trials, each ended once, none failed")


RECIPE = """
[model]
family = "hybrid-cnn-lstm"
features = 3
window = 12
channels = [4, 8]
hidden = 8
heads = 2
classes = 3

[data]
source = "synthetic:regimes"
samples = 400
workers = 1

[train]
effective_batch = 16
epochs = 40
optimizer = { name = "adamw", lr = 1e-3 }
evaluate = { every = "epoch" }
checkpoint = { every = "epoch", keep = 1 }

[search]
sampler = "random"
pruner = "none"
"train.optimizer.lr" = { low = 1e-4, high = 1e-2, log = true }
"train.effective_batch" = { product = { "train.batch_size" = [8, 16], "train.grad_accum" = [1, 2] } }
"""
REAL = "real trainings"


def real_workers(plimsoll, address, wanted, kills):
    """A coordinator and workers of the command itself on one storage; a dead one's trial goes on from its checkpoint."""
    rng = random.Random(2)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "recipe.toml").write_text(RECIPE)
        environment = {**os.environ, "STUDY_STORAGE": address, "XDG_CACHE_HOME": folder}
        command = [os.path.abspath(plimsoll), "tune", "recipe.toml", "--study", REAL, "--trials", str(wanted), "--device", "cpu",
                   "--storage", "env:STUDY_STORAGE", "--grace", "4", "--parallel", "1", "--threads", "1"]
        # The first coordinates; it is killed like the others.
        start = lambda index: begin(command + ["--worker"] * (index > 0), cwd=folder, env=environment,
                                    stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        running, killed = [start(index) for index in range(3)], [0, 0]
        for turn in range(kills):
            time.sleep(rng.uniform(0.5, 1.5))
            index = turn % 2 * rng.randrange(1, 3)
            if running[index].poll() is None:
                running[index].kill()
                running[index].wait()
                killed[index > 0] += 1
            running[index] = start(index)
        for worker in running:
            said = worker.communicate(timeout=240)[1].decode()
            if worker.returncode:
                sys.exit(f"a worker of plimsoll tune failed: {said}")
        study = optuna.load_study(study_name=REAL, storage=open_optuna(address))
        trials = study.get_trials()
        assert len(trials) == wanted and all(killed), (len(trials), killed)
        assert all(t.state == TrialState.COMPLETE for t in trials), [t.state for t in trials]
        assert all(t.user_attrs["peak_memory_gb"] > 0 and t.params["train.batch_size"] in (8, 16) for t in trials)
        assert math.isfinite(study.best_value) and study.metric_names == ["loss"]
        shown = subprocess.run([*command[:1], "study", REAL, "--storage", address, "--json"], capture_output=True, text=True)
        assert [t["values"] for t in json.loads(shown.stdout)["trials"]] == [t.values for t in trials]
    coordinator, workers = killed
    print(f"  {coordinator} kills of a coordinator and {workers} of 2 workers that train: {len(trials)} trials, all complete,"
          f" best {study.best_value:.4f}")


def dashboard(address):
    """The dashboard starts on the storage and lists both studies."""
    where = address.replace("postgresql:", "postgresql+psycopg2:", 1)
    port = 20000 + os.getpid() % 20000
    program = Path(sys.executable).with_name("optuna-dashboard")
    server = begin([program, where, "--port", str(port), "--host", "127.0.0.1"],
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        # On a busy machine its imports alone take a minute.
        until = time.monotonic() + 240
        while time.monotonic() < until and server.poll() is None:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/studies", timeout=5) as answer:
                    names = {study["study_name"] for study in json.load(answer)["study_summaries"]}
                break
            except OSError:
                time.sleep(0.5)
        else:
            sys.exit("optuna-dashboard does not answer")
        assert {STUDY, REAL} <= names, names
    finally:
        server.terminate()
        server.wait()
    print("  optuna-dashboard shows both studies")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tune", required=True)
    parser.add_argument("--storage", required=True)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--plimsoll")
    parser.add_argument("--trainings", type=int, default=12)
    arguments = parser.parse_args()
    print(arguments.storage.split("@")[-1])
    in_turn(arguments.tune, arguments.storage)
    if arguments.kills:
        with_kills(arguments.tune, arguments.storage, arguments.workers, arguments.kills, 50 + arguments.trials)
    if arguments.plimsoll:
        real_workers(arguments.plimsoll, arguments.storage, arguments.trainings, arguments.trainings // 2)
        dashboard(arguments.storage)


if __name__ == "__main__":
    main()
