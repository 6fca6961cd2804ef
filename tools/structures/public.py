"""What is `pub` and has no user outside its crate.

Rust's own lint knows what can be reached from outside, not what is. Here it is words that count, but only those of crates
that stand on this one, and only where they can mean the thing: a method behind a dot or a path, a function or a type
behind a path or in a `use`. What the facade hands out is everybody's. Fields are left alone: they are what their type is.
"""

import re
from collections import defaultdict
from functools import cache
from typing import NamedTuple

from .crates import dependencies
from .sources import sources, uses, without_quotes, without_tests

# `pub` in these is for others than our crates: people who link the library, PyTorch that looks up symbols.
FOR_OTHERS = {"plimsoll", "ghost-cuda"}
ITEM = re.compile(r"^([ \t]*)pub (?:const |async |unsafe )*(fn|struct|enum|trait|type|const|static) (\w+)(.*)", re.M)
OWNER = re.compile(r"^[ \t]*(?:unsafe )?impl(?:<.*?>)? (?:.* for )?(?:&?'?\w+ )?(?:\w+::)*(\w+)", re.M)


class Said(NamedTuple):
    """What sources say of things that may stand elsewhere."""

    # Behind `::`, with what stands before it, and in `use`.
    paths: frozenset
    # Behind a dot.
    methods: frozenset
    # All words, where everything of a module is used at once.
    words: frozenset


@cache
def said(file):
    text = without_quotes(file)
    leaves = list(uses(text))
    everything = any(steps[-1] == "*" and steps[0].startswith("plimsoll") for steps, _ in leaves)
    plain = re.sub(r"::<(?:[^<>(){};]|<[^<>]*>)*>", "", text)
    written = re.findall(r"(?=\b(\w+)\s*::\s*(\w+))", plain)
    used = [pair for steps, _ in leaves for pair in zip([None, *steps], steps)]
    renamed = [(steps[-1], name) for steps, name in leaves if steps[-1] != name]
    methods = re.findall(r"\.\s*(\w+)\s*\(", plain)
    return Said(frozenset(written + used + renamed), frozenset(methods), frozenset(re.findall(r"\w+", text) if everything else ()))


def together(files):
    each = [said(file) for file in files]
    return Said(*(frozenset().union(*parts) for parts in zip(*each))) if each else Said(*[frozenset()] * 3)


def stands_on(name, found):
    """The crates that use this one, themselves or through others; their tests may use more."""
    above, below = set(), {other: dependencies(folder, found) for other, folder in found.items()}
    while more := {other for other in found if below[other] & {name, *above}} - above:
        above |= more
    return above | {other for other, folder in found.items() if name in dependencies(folder, found, "dev-dependencies")}


def users(name, found):
    """Files outside a crate that may use it: other crates', its program's, its own tests and examples."""
    folder = found[name]
    own = [file for file in folder.rglob("*.rs") if folder / "src" not in file.parents or file.name == "main.rs"]
    return own + [file for other in sorted(stands_on(name, found)) for file in sorted(found[other].rglob("*.rs"))]


def exposed(folder):
    """Words of a crate's public signatures and fields: a type named there must be public, whoever says its name."""
    text = "\n".join(without_quotes(file) for file in (folder / "src").rglob("*.rs"))
    signatures = re.findall(r"\bpub (?:[^;{}=]|\{[^{}]*\})*", text)
    variants = re.findall(r"\bpub (?:enum|trait) \w+[^{]*\{(?:[^{}]|\{[^{}]*\})*\}", text)
    impls = re.findall(r"\bimpl\b[^{]*\{", text) + re.findall(r"^\s*type [^;]*;", text, re.M)
    return set(re.findall(r"\w+", " ".join(signatures + variants + impls)))


def by_macros(folder):
    """What a crate's macros name in other crates: `$crate::names::Named`."""
    text = "\n".join(without_quotes(file) for file in (folder / "src").rglob("*.rs"))
    return {step for path in re.findall(r"\$crate((?:::\w+)+)", text) for step in path.split("::")}


def owner(text, at):
    """The type in whose `impl` a place stands."""
    before = [match[1] for match in OWNER.finditer(text, 0, at)]
    return before[-1] if before else None


def handed_out(found):
    """Names of what the facade takes from other crates: people who link the library see it, and all it can do."""
    files = sources(found["plimsoll"]) if "plimsoll" in found else ()
    return {name for file in files for steps, name in uses(without_tests(file)) if steps[0].startswith("plimsoll_")}


def renamed(folder):
    """Name → what else a crate hands it on as: `pub use presets::of_family as presets_of`."""
    handed_on = "\n".join(use for file in sources(folder) for use in re.findall(r"\bpub use [^;]*;", without_tests(file)))
    names = defaultdict(set)
    for steps, name in uses(handed_on):
        names[steps[-1]] |= {name} - {steps[-1]}
    return names


def is_used(item, of, takes_self, outside):
    """Whether something is said outside, by one of its names; `of` are those of the type that it belongs to, if it does."""
    if item & outside.words:
        return True
    owners = of | {name for path, name in outside.paths if path in of}
    behind_paths = {name for path, name in outside.paths if not of or path in owners}
    return bool(item & behind_paths or takes_self and item & outside.methods)


def items(text):
    """(kind, name, type that it belongs to, whether it has a `self`) of everything `pub` in a file."""
    for match in ITEM.finditer(text):
        of = owner(text, match.start()) if match[1] else None
        takes_self = re.match(r"[^{;]*?\(\s*(?:&(?:'\w+ )?)?(?:mut )?self\b", text[match.end(3) :])
        yield match[2], match[3], of, bool(of and takes_self)


def lonely(name, found, place):
    """What is `pub` and used nowhere outside its crate."""
    folder = found[name]
    outside, shown = together(users(name, found)), exposed(folder)
    everybodys, others = by_macros(folder) | handed_out(found), renamed(folder)
    for file in sources(folder):
        for kind, item, of, takes_self in items(without_tests(file)):
            is_type = kind in ("struct", "enum", "trait", "type")
            if {item, of} & everybodys or is_type and item in shown:
                continue
            if not is_used({item} | others[item], {of} - {None} | others[of], takes_self, outside):
                yield f"{place(file)}: {kind} {item} is pub without a user outside crates/{name}: pub(crate)"


def denies(file, crate):
    """Whether what a file hands out cannot lack words: it says so, or a room that it stands in does."""
    above = [folder / "mod.rs" for folder in file.parents if crate / "src" in folder.parents]
    above += [folder.with_suffix(".rs") for folder in file.parents if crate / "src" in folder.parents]
    rooms = [room for room in [file, crate / "src/lib.rs", *above] if room.exists()]
    return any("#![deny(missing_docs)]" in room.read_text() for room in rooms)


def undocumented(found, place):
    """What the facade hands out of other crates, and may lack words where it stands."""
    files = sources(found["plimsoll"]) if "plimsoll" in found else ()
    handed = {(steps[0], steps[-1]) for file in files for use in re.findall(r"\bpub use [^;]*;", without_tests(file))
              for steps, _ in uses(use) if steps[0].startswith("plimsoll_")}  # fmt: skip
    for crate, item in sorted(handed):
        folder = found[crate.removeprefix("plimsoll_").replace("_", "-")]
        stands = re.compile(rf"((?:^[ \t]*#\[.*\n)*)^[ \t]*pub (?:fn|struct|enum|trait|type) {item}\b", re.M)
        places = [(file, match[1]) for file in sources(folder) for match in stands.finditer(without_tests(file))]
        if places and not any("deny(missing_docs)" in said or denies(file, folder) for file, said in places):
            yield f"{place(places[0][0])}: {item} is handed out by crates/plimsoll: #[deny(missing_docs)]"


def public_problems(found, place):
    yield from undocumented(found, place)
    for name, folder in found.items():
        if name not in FOR_OTHERS and (folder / "src/lib.rs").exists():
            yield from lonely(name, found, place)
