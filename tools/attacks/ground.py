"""What attacks start from: a command, small recipes and data that it trains on in a second, and runs made from them."""

import hashlib
import json
import os
import random
import resource
import shutil
import struct
import subprocess
import sys
import tempfile
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from attacks import parquet

# Address space that any command here has room in; what wants more because a number in a file says so is a failure.
MOST_BYTES = 16 << 30
SECONDS = 120
# Of so many, every twentieth part is told.
MANY = 1000

SERIES = """
[model]
family = "hybrid-cnn-lstm"
features = 3
window = 8
channels = [4]
hidden = 4
heads = 2
classes = 3
[data]
train = "series.csv"
label = "y"
[train]
task = "series"
effective_batch = 16
epochs = 2
seed = 3
optimizer = { name = "adamw", lr = 1e-3 }
evaluate = { every = 10 }
checkpoint = { every = 5, keep = 2 }
"""

TEXTS = """
[model]
family = "bert"
hidden_size = 8
num_hidden_layers = 1
num_attention_heads = 2
intermediate_size = 16
vocab_size = 400
max_position_embeddings = 32
num_labels = 2
[data]
source = "synthetic:sentiment"
samples = 200
max_length = 16
[train]
effective_batch = 16
epochs = 1
seed = 3
checkpoint = { every = 5, keep = 2 }
"""

FINE_TUNE = """
[model]
checkpoint = "checkpoint"
[data]
train = "texts.jsonl"
max_length = 16
validation = 0.2
[train]
effective_batch = 8
epochs = 1
seed = 3
"""

IMAGES = """
[model]
family = "clip"
projection_dim = 8
[model.text_config]
vocab_size = 64
hidden_size = 8
intermediate_size = 16
num_hidden_layers = 1
num_attention_heads = 2
max_position_embeddings = 16
[model.vision_config]
hidden_size = 8
intermediate_size = 16
num_hidden_layers = 1
num_attention_heads = 2
image_size = 16
patch_size = 8
[data]
source = "synthetic:shapes"
samples = 40
max_length = 16
[train]
effective_batch = 8
epochs = 1
seed = 3
"""


class Ground:
    def __init__(self, binary, root, seed, jobs):
        self.binary, self.root, self.seed, self.jobs = binary, root, seed, jobs
        # What is started inherits them; limits between fork and exec would make every start a copy of this process.
        resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        self.kept = root / "target/attack"
        self.kept.mkdir(parents=True, exist_ok=True)
        self.work = Path(tempfile.mkdtemp(prefix="attack-"))
        self.environment = {k: v for k, v in os.environ.items() if k in ("PATH", "HOME", "LANG")}
        self.environment |= {"XDG_CACHE_HOME": str(self.work / "cache"), "NO_COLOR": "1"}
        self._series = self._texts = self._images = None

    def __del__(self):
        shutil.rmtree(self.work, ignore_errors=True)

    def chance(self, *parts):
        return random.Random("/".join(map(str, (self.seed, *parts))))

    def folder(self, name):
        path = self.work / name
        path.mkdir(parents=True)
        return path

    def run(self, arguments, cwd, environment=None, stdout=None, seconds=SECONDS):
        """The finished command; one that takes too long has return code None."""
        try:
            return subprocess.run(
                [str(self.binary), *map(str, arguments)], cwd=cwd, stdin=subprocess.DEVNULL, env=environment or self.environment,
                stdout=stdout or subprocess.PIPE, stderr=subprocess.PIPE, timeout=seconds)
        except subprocess.TimeoutExpired as late:
            return subprocess.CompletedProcess(late.cmd, None, late.stdout or b"", late.stderr or b"")

    def each(self, work, count):
        """What `work` returns for every number below `count` that is not None; of many, how far it got is said."""
        failures = []
        with ThreadPoolExecutor(self.jobs) as pool:
            for done, failure in enumerate(pool.map(work, range(count)), 1):
                if failure is not None:
                    failures.append(failure)
                if count >= MANY and done % (count // 20) == 0:
                    print(f"  {done} of {count}, {len(failures)} failed", file=sys.stderr, flush=True)
        return failures

    def train(self, recipe, out, *more, **how):
        return self.run(["train", recipe, "--out", out, *more], recipe.parent, **how)

    # Made once, when first asked for.

    @property
    def series(self):
        """A folder with a recipe, a table and a finished run `run`."""
        if self._series is None:
            self._series = self.folder("series")
            write_series(self._series / "series.csv", 120)
            (self._series / "recipe.toml").write_text(SERIES)
            finished(self.train(self._series / "recipe.toml", self._series / "run"))
        return self._series

    @property
    def texts(self):
        """The same of texts, with a checkpoint and a recipe that starts from it."""
        if self._texts is None:
            folder = self._texts = self.folder("texts")
            (folder / "recipe.toml").write_text(TEXTS)
            finished(self.train(folder / "recipe.toml", folder / "run"))
            shutil.copytree(folder / "run/model", folder / "checkpoint")
            (folder / "fine-tune.toml").write_text(FINE_TUNE)
            write_texts(folder / "texts.jsonl", 60)
        return self._texts

    @property
    def images(self):
        """The same of images: a run, and a table of pictures with captions."""
        if self._images is None:
            folder = self._images = self.folder("images")
            (folder / "recipe.toml").write_text(IMAGES)
            finished(self.train(folder / "recipe.toml", folder / "run"))
            for at in range(4):
                (folder / f"{at}.png").write_bytes(png(20 + at, 24, at))
            rows = [{"image": f"{at}.png", "caption": "a red circle"} for at in range(4)]
            (folder / "pictures.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        return self._images


def finished(done):
    if done.returncode != 0:
        raise SystemExit(f"error: the ground cannot be made: {done.args}\n{done.stderr.decode(errors='replace')}")


def write_series(path, rows):
    """CSV, JSONL or Parquet of three features and a class of three."""
    numbers = [[((i * 37 + k * 11) % 19) / 7 - 1 for k in range(3)] + [float(i // 5 % 3)] for i in range(rows)]
    names = ["a", "b", "c", "y"]
    if path.suffix == ".csv":
        path.write_text(",".join(names) + "\n" + "".join(",".join(map(str, row)) + "\n" for row in numbers))
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(dict(zip(names, row))) + "\n" for row in numbers))
    else:
        path.write_bytes(parquet.table({name: [row[k] for row in numbers] for k, name in enumerate(names)}))


def write_texts(path, rows):
    words = "good bad fine film plot dull great day".split()
    rows = [{"text": " ".join(words[(i * 3 + k) % 8] for k in range(1 + i % 6)), "label": i % 2} for i in range(rows)]
    if path.suffix == ".csv":
        path.write_text("text,label\n" + "".join(f"{row['text']},{row['label']}\n" for row in rows))
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        path.write_bytes(parquet.table({k: [row[k] if k == "text" else float(row[k]) for row in rows] for k in rows[0]}))


def png(width, height, shade):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    rows = b"".join(b"\0" + bytes((shade * 40 + x * 3 + y * 5) % 256 for x in range(width) for _ in range(3)) for y in range(height))
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def digest(folder):
    """What a folder holds, names and bytes; None where there is none."""
    if not folder.is_dir():
        return None
    parts = [(str(path.relative_to(folder)), hashlib.sha256(path.read_bytes()).hexdigest())
             for path in sorted(folder.rglob("*")) if path.is_file()]
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def fault_of(done):
    """What is wrong with how a command ended, whatever it was given; None if nothing is."""
    said = done.stderr.decode(errors="replace")
    if done.returncode is None:
        return f"did not end in {SECONDS} s"
    if done.returncode not in (0, 1, 2, 3, 130):
        return f"ended with {done.returncode}: {said[-300:]}"
    for word in ("panicked at", "defect of plimsoll", "RUST_BACKTRACE"):
        if word in said:
            return f"says {word!r}: {said[-400:]}"
    if done.returncode in (1, 2) and "error:" not in said:
        return f"ended with {done.returncode} without a word: {said[-200:]}"
    return None
