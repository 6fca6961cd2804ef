"""A crash, a full disk or a broken one at file-system calls, one at a time, by a library that is loaded in front of the system's."""

import shutil
import subprocess

from attacks.ground import digest, fault_of

# What happens at the call: the process is gone before it, after it, in the middle of it; or the call fails, once or from then on.
KINDS = ["kill", "after", "half", "full", "broken", "full-for-good"]
# Points of each command in the short form.
POINTS = 7


def attack(ground, asked):
    shim = build(ground)
    tried, failures = 0, []
    for command in (Train(ground), Export(ground), Predict(ground)):
        calls = command.count(shim)
        step = 1 if asked.all or asked.long else max(1, calls // POINTS)
        first = 0 if step == 1 else ground.chance("faults", command.name).randrange(step)
        kinds = KINDS if asked.all or asked.long else None
        points = [(call, kind) for i, call in enumerate(range(first, calls, step))
                  for kind in (kinds or [KINDS[(i + ground.seed) % len(KINDS)]])]

        def one(number):
            call, kind = points[number]
            return command.at(shim, call, kind, number)

        failures += ground.each(one, len(points))
        tried += len(points)
    return tried, failures


def build(ground):
    library = ground.work / "shim.so"
    source = ground.root / "tools/attacks/shim.c"
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"], check=True)
    return library


class Command:
    """A command whose files lie below one folder."""

    def __init__(self, ground):
        self.ground = ground

    def environment(self, shim, root, call=-1, kind="none", counted=None):
        own = {"LD_PRELOAD": str(shim), "ATTACK_ROOT": str(root), "ATTACK_CALL": str(call), "ATTACK_KIND": kind}
        return self.ground.environment | own | ({"ATTACK_COUNT": str(counted)} if counted else {})

    def count(self, shim):
        folder = self.prepared("count")
        counted = self.ground.work / f"{self.name}.count"
        done = self.run(folder, self.environment(shim, folder, counted=counted))
        if done.returncode != 0:
            raise SystemExit(f"error: {self.name} fails by itself: {done.stderr.decode(errors='replace')}")
        self.expected = self.result(folder)
        return int(counted.read_text())

    def at(self, shim, call, kind, number):
        folder = self.prepared(f"{number}")
        done = self.run(folder, self.environment(shim, folder, call, kind))
        fault = None if done.returncode == -9 else fault_of(done)
        fault = fault or self.judged(folder, done)
        if fault is None:
            return shutil.rmtree(folder, ignore_errors=True)
        kept = self.ground.kept / f"faults-{self.name}-{call}-{kind}"
        shutil.rmtree(kept, ignore_errors=True)
        shutil.move(folder, kept)
        return f"{self.name}, call {call}, {kind}: {fault} (kept in {kept})"

    def prepared(self, name):
        return self.ground.folder(f"faults-{self.name}-{name}")


class Train(Command):
    name = "train"

    def run(self, folder, environment):
        arguments = ["train", self.ground.series / "recipe.toml", "--out", folder / "run"]
        return self.ground.run(arguments, self.ground.series, environment)

    def result(self, folder):
        return digest(folder / "run/model")

    def judged(self, folder, done):
        if done.returncode == 0:
            return None if self.result(folder) == self.expected else "says that all is well, and the model is another"
        # A run without a recipe has not begun: it begins again. Any other goes on.
        begun = (folder / "run/recipe.toml").exists()
        arguments = ["train", self.ground.series / "recipe.toml", "--out", folder / "run"] + (["--resume"] if begun else [])
        again = self.ground.run(arguments, self.ground.series)
        if again.returncode != 0:
            return f"cannot be resumed: {again.stderr.decode(errors='replace')[-300:]}"
        left = [path.name for path in (folder / "run").rglob("*") if ".tmp" in path.name or path.name.startswith((".draft", ".doomed"))]
        if left:
            return f"leaves {left}"
        return None if self.result(folder) == self.expected else "resumed to another model"


class Export(Command):
    """Over an export that is there already: it is the old one or the new one, whole."""
    name = "export"

    def prepared(self, name):
        folder = super().prepared(name)
        shutil.copytree(self.ground.texts / "run/model", folder / "out")
        weights = folder / "out/model.safetensors"
        data = bytearray(weights.read_bytes())
        data[-1] ^= 1
        weights.write_bytes(bytes(data))
        self.old = digest(folder / "out")
        return folder

    def run(self, folder, environment):
        return self.ground.run(["export", self.ground.texts / "run", folder / "out"], folder, environment)

    def result(self, folder):
        return digest(folder / "out")

    def judged(self, folder, done):
        found = self.result(folder)
        if done.returncode == 0:
            return None if found == self.expected else "says that all is well, and the export is not whole"
        return None if found in (self.old, self.expected) else "leaves an export that is neither the old nor the new one"


class Predict(Command):
    """Answers into a file: whole, or an error."""
    name = "predict"

    def run(self, folder, environment):
        with (folder / "answers.jsonl").open("wb") as answers:
            arguments = ["predict", self.ground.texts / "run", self.ground.texts / "texts.jsonl"]
            return self.ground.run(arguments, folder, environment, stdout=answers)

    def result(self, folder):
        return (folder / "answers.jsonl").read_bytes()

    def judged(self, folder, done):
        if done.returncode == 0 and self.result(folder) != self.expected:
            return "says that all is well, and answers are missing"
        return None
