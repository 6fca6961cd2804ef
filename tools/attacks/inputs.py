"""Mutated inputs: a command may refuse them, never fall over them."""

import shutil

from attacks.ground import fault_of, write_series, write_texts
from attacks.mutate import damaged_bytes, damaged_json, damaged_tensors, damaged_text

SHORT, LONG = 240, 100_000


def attack(ground, asked):
    count = asked.count or (LONG if asked.long else SHORT)
    cases = list(CASES)

    def one(number):
        name, rng = cases[number % len(cases)], ground.chance("inputs", number)
        folder = ground.work / f"inputs-{number}"
        folder.mkdir()
        arguments = CASES[name](ground, folder, rng)
        fault = fault_of(ground.run(arguments, folder))
        if fault is None:
            return shutil.rmtree(folder)
        kept = ground.kept / f"inputs-{ground.seed}-{number}"
        shutil.rmtree(kept, ignore_errors=True)
        shutil.move(folder, kept)
        return f"{name}: cd {kept} && plimsoll {' '.join(map(str, arguments))}: {fault}"

    # What all start from is made before any of them starts.
    ground.series, ground.texts, ground.images
    return count, ground.each(one, count)


def recipe(ground, folder, rng):
    source = rng.choice([ground.series / "recipe.toml", ground.texts / "fine-tune.toml", ground.images / "recipe.toml",
                         *sorted((ground.root / "recipes").glob("*-small.toml"))])
    (folder / "r.toml").write_bytes(damaged_text(source.read_text(), rng))
    return ["plan", "r.toml", "--json"]


def series(ground, folder, rng):
    suffix = rng.choice([".csv", ".jsonl", ".parquet"])
    write_series(folder / f"series{suffix}", 60)
    damage(folder / f"series{suffix}", rng)
    text = (ground.series / "recipe.toml").read_text().replace("series.csv", f"series{suffix}")
    if rng.random() < 0.5:
        text = text.replace('label = "y"', f'label = "y"\ngaps = "{rng.choice(["forward", "mean", "drop"])}"')
    (folder / "r.toml").write_text(text)
    return ["train", "r.toml", "--steps", 1, "--out", "run"]


def texts(ground, folder, rng):
    suffix = rng.choice([".csv", ".jsonl", ".parquet"])
    write_texts(folder / f"texts{suffix}", 20)
    damage(folder / f"texts{suffix}", rng)
    text = (ground.texts / "fine-tune.toml").read_text().replace("texts.jsonl", f"texts{suffix}")
    text = text.replace('"checkpoint"', f'"{ground.texts}/checkpoint"')
    skip = rng.choice(["", "on_bad_row = \"skip\"\n"])
    (folder / "r.toml").write_text(text.replace("max_length", skip + "max_length"))
    return ["train", "r.toml", "--steps", 1, "--out", "run"]


def checkpoint(ground, folder, rng):
    shutil.copytree(ground.texts / "checkpoint", folder / "checkpoint")
    file = rng.choice(["config.json", "model.safetensors", "tokenizer.json"])
    damage(folder / "checkpoint" / file, rng)
    shutil.copy(ground.texts / "texts.jsonl", folder)
    shutil.copy(ground.texts / "fine-tune.toml", folder)
    return ["train", "fine-tune.toml", "--steps", 1, "--out", "run"]


def run_folder(ground, folder, rng):
    """A run whose files are damaged: resumed, evaluated, exported, asked, reported."""
    base = rng.choice([ground.series, ground.texts])
    shutil.copytree(base / "run", folder / "run")
    for name in ("series.csv", "recipe.toml"):
        if (base / name).exists():
            shutil.copy(base / name, folder)
    files = [path for path in (folder / "run").rglob("*") if path.is_file() and path.stat().st_size]
    damage(rng.choice(sorted(files)), rng)
    write_series(folder / "ask.csv", 20)
    write_texts(folder / "ask.jsonl", 5)
    asked = folder / ("ask.csv" if base == ground.series else "ask.jsonl")
    return rng.choice([
        ["train", "recipe.toml", "--resume", "--out", "run"], ["eval", "run", "--json"], ["export", "run", "out"],
        ["predict", "run", asked], ["report", "run"],
    ])


def plan_file(ground, folder, rng):
    shutil.copy(ground.series / "series.csv", folder)
    shutil.copy(ground.series / "recipe.toml", folder)
    data = (ground.series / "run/plan.json").read_text()
    (folder / "plan.json").write_bytes(damaged_json(data, rng) if rng.random() < 0.7 else damaged_bytes(data.encode(), rng))
    return ["train", "recipe.toml", "--steps", 1, "--out", "run", "--plan", "plan.json"]


def question(ground, folder, rng):
    """A file that a trained model is asked about."""
    base, write = rng.choice([(ground.series, write_series), (ground.texts, write_texts)])
    file = folder / ("ask" + rng.choice([".csv", ".jsonl", ".parquet"]))
    write(file, 30)
    damage(file, rng)
    return ["predict", base / "run", file]


def image(ground, folder, rng):
    shutil.copytree(ground.images, folder / "images", ignore=shutil.ignore_patterns("run"))
    goldens = [path for path in (ground.root / "crates/images/tests/goldens").glob("*")
               if path.suffix in (".png", ".jpg", ".gif", ".bmp", ".webp")]
    picked = rng.choice(sorted(goldens))
    damaged = folder / "images" / f"x{picked.suffix}"
    damaged.write_bytes(damaged_bytes(picked.read_bytes(), rng))
    with (folder / "images/pictures.jsonl").open("a") as table:
        table.write(f'{{"image": "{damaged.name}", "caption": "a red circle"}}\n')
    return ["predict", ground.images / "run", rng.choice([folder / "images", folder / "images/pictures.jsonl"])]


def damage(path, rng):
    data = path.read_bytes()
    if path.suffix == ".safetensors":
        damaged = damaged_tensors(data, rng)
    elif path.suffix == ".json" and rng.random() < 0.7:
        damaged = damaged_json(data.decode(), rng)
    elif path.suffix == ".parquet" or rng.random() < 0.4:
        damaged = damaged_bytes(data, rng)
    else:
        damaged = damaged_text(data.decode(), rng)
    path.write_bytes(damaged)


CASES = {
    "recipe": recipe, "series": series, "texts": texts, "checkpoint": checkpoint, "run folder": run_folder,
    "plan.json": plan_file, "question": question, "image": image,
}
