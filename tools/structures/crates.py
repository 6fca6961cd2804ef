"""The crates, the order they stand in, and the picture of it."""

import re

from .rooms import drawn_lines
from .sources import read

# From the floor up. A crate may use those before it.
CRATES = [
    "base", "core", "models", "planner", "images", "data", "exec", "cuda", "runs", "train", "report",
    "plimsoll", "ghost-cuda", "ghost", "tune", "track", "serve", "cli", "xtask",
]
# What outside crates may lean on: runs and the facade, never a trainer.
ONLY = {"tune": {"plimsoll", "runs"}, "track": {"runs"}, "serve": {"plimsoll", "runs", "report", "track", "tune", "ghost"}}


def package(name):
    return "plimsoll" if name == "plimsoll" else f"plimsoll-{name}"


def crates(root):
    """Name → folder of every crate that exists."""
    return {folder.name: folder for folder in sorted((root / "crates").iterdir()) if (folder / "Cargo.toml").exists()}


def dependencies(folder, names, table="dependencies"):
    text = read(folder / "Cargo.toml")
    wanted = text.split(f"\n[{table}]")[1].split("\n[")[0] if f"\n[{table}]" in text else ""
    lines = {re.split(r"[ .=]", line)[0] for line in wanted.splitlines() if line.strip()}
    return {name for name in names if package(name) in lines and name != folder.name}


def crate_problems(found):
    unknown = set(found) - set(CRATES)
    yield from (f"crates/{name} has no place in the order of tools/structures/crates.py" for name in sorted(unknown))
    for name, folder in found.items():
        uses = dependencies(folder, found)
        for to in sorted(uses):
            if name in CRATES and to in CRATES and CRATES.index(to) > CRATES.index(name):
                yield f"crates/{name} depends on {to}, which stands above it"
        for to in sorted(uses - ONLY.get(name, uses)):
            yield f"crates/{name} may depend on {', '.join(sorted(ONLY[name]))} only, not on {to}"
        if not re.search(r"^\[lints\]\nworkspace = true$", read(folder / "Cargo.toml"), re.M):
            yield f"crates/{name}/Cargo.toml lacks `[lints] workspace = true`"


def lines_of(folder):
    return sum(len(read(file).splitlines()) for file in (folder / "src").rglob("*.rs"))


def about(folder):
    return re.search(r'description = "(.*)"', read(folder / "Cargo.toml"))[1]


def picture(found):
    """The crates from the floor up, with what each leans on and the rooms inside."""
    names = [name for name in CRATES if name in found]
    width = max(map(len, names))
    rows = []
    for name in names:
        uses = [to for to in CRATES if to in dependencies(found[name], found)]
        rows.append(f"{name:<{width}} {lines_of(found[name]) / 1000:>5.1f}k  {about(found[name])}")
        rows += [f"{'':<{width}}         {inside}" for inside in drawn_lines(found[name])]
        rows += [f"{'':<{width}}         uses {', '.join(uses)}"] if uses else []
    return "```text\n" + "\n".join(rows) + "\n```"
