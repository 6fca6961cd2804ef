"""Several processes in one folder, or with one name: one trains, the others are told, nothing is mixed."""

import subprocess

from attacks.ground import digest, fault_of

ROUNDS, LONG_ROUNDS = 2, 25


def attack(ground, asked):
    rounds = asked.count or (LONG_ROUNDS if asked.long else ROUNDS)
    expected, failures = digest(ground.series / "run/model"), []
    for number in range(rounds):
        failures += together(ground, number, expected) + by_name(ground, number)
    return 2 * rounds, failures


def start(ground, arguments, cwd):
    return subprocess.Popen([str(ground.binary), *map(str, arguments)], cwd=cwd, env=ground.environment, stdin=subprocess.DEVNULL,
                            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def together(ground, number, expected):
    """Three at once into one folder."""
    out = ground.work / f"together-{number}"
    arguments = ["train", ground.series / "recipe.toml", "--out", out]
    running = [start(ground, arguments, ground.series) for _ in range(3)]
    ended = [subprocess.CompletedProcess(arguments, one.wait(), b"", one.stderr.read()) for one in running]
    codes = sorted(one.returncode for one in ended)
    faults = [fault for one in ended if (fault := fault_of(one))]
    if codes[0] != 0 or any(code not in (0, 1, 2) for code in codes):
        faults.append(f"three at once ended with {codes}")
    if codes.count(0) > 1:
        faults.append("two of three trained in one folder")
    if digest(out / "model") != expected:
        faults.append("what was left is another model")
    return [f"round {number}: {fault}" for fault in faults]


def by_name(ground, number):
    """Three at once without a folder: each gets one of its own, with its own recipe."""
    home = ground.folder(f"by-name-{number}")
    rates = ["1e-3", "1e-4", "1e-5"]
    running = [start(ground, ["train", ground.series / "recipe.toml", "--set", f"train.optimizer.lr={rate}", "--steps", 3], home)
               for rate in rates]
    ended = [subprocess.CompletedProcess([], one.wait(), b"", one.stderr.read()) for one in running]
    faults = [fault for one in ended if (fault := fault_of(one))]
    faults += [f"ended with {one.returncode}" for one in ended if one.returncode]
    found = sorted(path for path in (home / "runs").glob("*") if (path / "model").is_dir())
    recipes = {(path / "recipe.toml").read_text() for path in found}
    if len(found) != 3 or len(recipes) != 3:
        faults.append(f"three runs are {len(found)} folders with {len(recipes)} recipes")
    return [f"round {number}: {fault}" for fault in faults]
