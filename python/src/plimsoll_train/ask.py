"""Asks `plimsoll ghost` about a model, a batch and an optimizer."""
import json
import multiprocessing.spawn
import os
import pickle
import shutil
import subprocess
import sys
import sysconfig
import tempfile

from .answer import Answer, PlimsollError
from .parcel import pack

PRECISIONS = (None, "fp32", "bf16", "fp16")


def fits(model, batch, optimizer, card=None, memory=None, loss=None, precision=None, accumulate=1, steps=3, time_limit=600):
    """Whether some steps of this training fit the card.

    `batch` goes to the model as `model(**batch)` (a mapping), `model(*batch)` (a tuple or list) or `model(batch)`;
    `loss(output, batch)` makes a loss of what comes out; without it the output's `loss` is taken, or a sum over it.
    `precision` is "bf16" or "fp16" for autocast; weights stay as they are. `accumulate` batches make a step.
    `memory` ("24GiB") overrides what the card has.
    """
    if precision not in PRECISIONS:
        raise ValueError(f"precision is one of {', '.join(map(repr, PRECISIONS))}, not {precision!r}")
    if accumulate < 1 or steps < 1:
        raise ValueError("accumulate and steps are at least 1")
    if card is None and memory is None:
        raise ValueError('name a card (card="rtx-4090"; `plimsoll devices --catalog` lists them) or a size (memory="24GiB")')
    task = dict(model=model, batch=batch, optimizer=optimizer, loss=loss, precision=precision, accumulate=accumulate)
    with tempfile.TemporaryDirectory(prefix="plimsoll-train-") as folder:
        parcel = os.path.join(folder, "task")
        write(parcel, task)
        return answer(command(card, memory, steps, time_limit, parcel))


def write(path, task):
    try:
        body = pack(task)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise PlimsollError(f"this cannot be sent to another process: {error}. Define it in a module, not inside a function "
                            "or a notebook, and pass functions by name") from error
    preparation = multiprocessing.spawn.get_preparation_data("plimsoll")
    preparation.pop("authkey", None)  # a secret of this process, and no use to the other
    with open(path, "wb") as file:
        pickle.dump(dict(preparation=preparation, task=body), file, protocol=4)


def binary():
    beside = os.path.join(sysconfig.get_path("scripts"), "plimsoll")
    found = os.environ.get("PLIMSOLL") or (beside if os.path.exists(beside) else shutil.which("plimsoll"))
    if not found:
        raise PlimsollError("the command `plimsoll` is not here: install the wheel again, or let PLIMSOLL name it")
    return found


def command(card, memory, steps, time_limit, parcel):
    where = [*(["--card", card] if card else []), *(["--memory", memory] if memory else [])]
    program = [sys.executable, "-m", "plimsoll_train.probe", parcel]
    return [binary(), "ghost", "--json", "--steps", str(steps), "--time-limit", str(time_limit), *where, "--", *program]


def answer(command):
    """0 and 3 are answers; anything else says why there is none."""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode not in (0, 3) or not done.stdout.strip():
        raise PlimsollError(done.stderr.strip()[-2000:] or f"plimsoll ended with {done.returncode}")
    return Answer.of(json.loads(done.stdout))
