"""Signals at random moments of a training: however often it is ended, it goes on to the same bits."""

import signal
import subprocess
import time

from attacks.ground import digest, fault_of

SHORT, LONG = 8, 1000
SIGNALS = [signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP]


def attack(ground, asked):
    count = asked.count or (LONG if asked.long else SHORT)
    expected = {base: digest(base / "run/model") for base in (ground.series, ground.texts)}
    seconds = {base: timed(ground, base) for base in expected}
    runs = max(1, count // 4)

    def one(number):
        """A run that is ended four times, then left alone."""
        rng = ground.chance("kills", number)
        base = rng.choice(list(expected))
        out = ground.work / f"kills-{number}"
        for _ in range(4):
            resume = ["--resume"] if (out / "recipe.toml").exists() else []
            arguments = [str(ground.binary), "train", str(base / "recipe.toml"), "--out", str(out), *resume]
            running = subprocess.Popen(arguments, cwd=base, env=ground.environment, stdin=subprocess.DEVNULL,
                                       stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
            time.sleep(rng.random() * seconds[base])
            running.send_signal(rng.choice(SIGNALS))
            _, said = running.communicate(timeout=120)
            done = subprocess.CompletedProcess(arguments, running.returncode, b"", said)
            if running.returncode >= 0 and (fault := fault_of(done)):
                return f"run {number}: {fault}"
        again = ground.train(base / "recipe.toml", out, *(["--resume"] if (out / "recipe.toml").exists() else []))
        if again.returncode != 0:
            return f"run {number} cannot go on: {again.stderr.decode(errors='replace')[-300:]}"
        return None if digest(out / "model") == expected[base] else f"run {number}: another model"

    return 4 * runs, ground.each(one, runs)


def timed(ground, base):
    began = time.monotonic()
    ground.train(base / "recipe.toml", ground.work / f"timed-{base.name}")
    return time.monotonic() - began
