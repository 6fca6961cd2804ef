"""The checks on crates made for them, each with one thing wrong: a check that sees nothing finds nothing, for ever."""

import tempfile
from pathlib import Path

from .crates import crate_problems, crates
from .public import public_problems
from .rooms import room_problems

MANIFEST = '[package]\ndescription = "made"\n\n[lints]\nworkspace = true\n\n[dependencies]\n'
LIB = "//! low ◄─ high\n\nmod high;\nmod low;\n\npub use low::Low;\n"
LOW = "pub struct Low;\nimpl Low {\n    pub fn told(&self) {}\n}\n"
SOUND = {
    "crates/base/Cargo.toml": MANIFEST,
    "crates/base/src/lib.rs": LIB,
    "crates/base/src/low.rs": LOW,
    "crates/base/src/high/mod.rs": "mod deep;\nuse super::low::Low;\n",
    "crates/base/src/high/deep.rs": "use crate::Low;\n\n#[cfg(test)]\nmod tests {\n    use super::*;\n}\n",
    "crates/cli/Cargo.toml": MANIFEST + "plimsoll-base.workspace = true\n",
    "crates/cli/src/main.rs": "use plimsoll_base::Low;\nfn main() {\n    Low.told();\n}\n",
}


def order(steps):
    return {"crates/base/src/lib.rs": LIB.replace("low ◄─ high", steps)}


def below(text):
    return {"crates/base/src/low.rs": LOW + text}


def method(text):
    return {"crates/base/src/low.rs": LOW.replace("    pub", f"    {text}\n    pub")}


def said(text, handed_on=""):
    return {"crates/cli/src/other.rs": text, "crates/base/src/lib.rs": LIB + handed_on}


def handed_out(text):
    manifest = MANIFEST + "plimsoll-base.workspace = true\n"
    return {"crates/plimsoll/Cargo.toml": manifest, "crates/plimsoll/src/lib.rs": text}


CIRCLE = "a circle: high → low → high"
# What is changed of a sound workspace, and words of a complaint that must follow; none where it stays sound.
CASES = [
    ({}, None),
    (below("use crate::high::deep;"), CIRCLE),
    (below("use super::high;"), CIRCLE),
    (below("use self::super::high::{self, deep};"), CIRCLE),
    (below("fn up() {\n    super::high::up()\n}"), CIRCLE),
    (below("mod inner {\n    use super::super::high;\n}"), CIRCLE),
    (below('// crate::high\nconst NAME: &str = "super::high";'), None),
    (below("#[cfg(test)]\nmod tests {\n    use super::super::high;\n}"), None),
    (below("#[cfg(test)]\nuse crate::high;\n\nmod inner {\n    use super::Low;\n}"), None),
    (below("fn root() -> crate::Root {}"), "low uses Root (crates/base/src/low.rs), which stands in lib.rs"),
    (order("high ◄─ low"), "high uses low (crates/base/src/high/deep.rs), which stands above it"),
    (order("low, high ◄─"), "which stands beside it"),
    (order(""), "lib.rs draws no order of its rooms; one that holds: low ◄─ high"),
    (order("◄─ low"), "high has no place in the order"),
    (order("low ◄─ high ◄─ attic"), "lib.rs draws attic, which is not there"),
    ({"crates/base/Cargo.toml": MANIFEST.replace("[lints]\nworkspace = true\n", "")}, "lacks `[lints] workspace = true`"),
    ({"crates/base/Cargo.toml": MANIFEST + "plimsoll-cli.workspace = true\n"}, "depends on cli, which stands above it"),
    ({"crates/other/Cargo.toml": MANIFEST}, "crates/other has no place"),
    ({"crates/cli/Cargo.toml": MANIFEST}, "fn told is pub without a user"),
    (below("pub fn alone() {}"), "fn alone is pub without a user"),
    (below("pub fn named() {}") | said("// plimsoll_base::named"), "fn named is pub without a user"),
    (below("pub fn named() {}") | said("use plimsoll_base::named;"), None),
    (method("pub fn main(&self) {}"), "fn main is pub without a user"),
    (method("pub fn new() {}") | said("fn f() {\n    Vec::new()\n}"), "fn new is pub without a user"),
    (method("pub fn new() {}") | said("fn f() {\n    Low::new()\n}"), None),
    (method("pub fn new() {}") | said("fn f() {\n    Lowest::new()\n}", "pub use low::Low as Lowest;"), None),
    (handed_out("pub use plimsoll_base::Low;"), "Low is handed out by crates/plimsoll: #[deny(missing_docs)]"),
    (handed_out("pub use plimsoll_base::Low;") | {"crates/base/src/low.rs": "#[deny(missing_docs)]\n" + LOW}, None),
    (handed_out("pub use plimsoll_base::Low;") | {"crates/base/src/low.rs": "#![deny(missing_docs)]\n" + LOW}, None),
    (handed_out("use plimsoll_base::Low;"), None),
]


def complaints(files):
    with tempfile.TemporaryDirectory() as made:
        root = Path(made)
        for name, text in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        found = crates(root)
        place = lambda file: file.relative_to(root)
        rooms = [problem for name, folder in found.items() for problem in room_problems(name, folder, place)]
        return [*crate_problems(found), *rooms, *public_problems(found, place)]


def problems():
    for change, expected in CASES:
        given = complaints(SOUND | change)
        if not (any(expected in problem for problem in given) if expected else not given):
            yield f"tools/structures/itself.py: {change} should give {expected or 'nothing'}, gives {given or 'nothing'}"
