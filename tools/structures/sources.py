"""Rust sources as far as walls need them: modules without their tests, and the paths that each of them says."""

import re
from functools import cache
from typing import NamedTuple

# Comments, strings and characters: braces in them open nothing. (r#"…"# before "…", '{' before lifetimes.)
QUOTED = re.compile(r"""//[^\n]*|/\*.*?\*/|b?r(#*)".*?"\1|b?"(?:\\.|[^"\\])*"|b?'(?:\\[^']+|[^'\\\n])'""", re.S)
FOR_TESTS = re.compile(r"^[ \t]*#\[cfg\((?:(?:all|any)\()?test\b[^\]]*\]", re.M)
INLINE = re.compile(r"\bmod (\w+) \{")


class Module(NamedTuple):
    """A module with its text alone: neither quotes nor tests nor the modules inside it."""

    path: tuple
    file: object
    text: str


@cache
def read(file):
    return file.read_text()


def blank(text):
    return re.sub(r"[^\n]", " ", text)


@cache
def without_quotes(file):
    """The text of a file with its quoted parts blanked, line by line the same."""
    return QUOTED.sub(lambda part: blank(part[0]), read(file))


def item_end(text, start):
    """Where the item that begins there ends: behind its braces, or behind a semicolon before any."""
    depth = 0
    for at in range(start, len(text)):
        depth += (text[at] in "([{") - (text[at] in ")]}")
        if depth == 0 and text[at] in ";}":
            return at + 1
    return len(text)


@cache
def without_tests(file):
    """The text of a file without quotes and without what only tests see: that may look anywhere."""
    text, at = without_quotes(file), 0
    while found := FOR_TESTS.search(text, at):
        end = item_end(text, found.end())
        text, at = text[: found.start()] + blank(text[found.start() : end]) + text[end:], end
    return text


def home(file):
    """The folder of the modules that a file declares."""
    return file.parent if file.name in ("lib.rs", "main.rs", "mod.rs") else file.parent / file.stem


@cache
def of_tests(folder):
    """The files of modules that only tests see."""
    found = set()
    for file in folder.rglob("*.rs"):
        for match in FOR_TESTS.finditer(without_quotes(file)):
            declared = re.match(r'\s*(?:#\[path = "([^"]+)"\]\s*)?(?:pub\S* )?mod (\w+);', read(file)[match.end() :])
            if declared:
                found |= {file.parent / declared[1]} if declared[1] else of_module(home(file), declared[2])
    return found


def of_module(folder, name):
    return {folder / f"{name}.rs", *(folder / name).rglob("*.rs")}


def sources(folder):
    """The files of a crate, those of its tests left out."""
    return sorted(set((folder / "src").rglob("*.rs")) - of_tests(folder / "src"))


def place(folder, file):
    """The path of a file's module: src/a/mod.rs and src/a.rs are a."""
    parts = file.relative_to(folder / "src").with_suffix("").parts
    return parts[:-1] if parts[-1] in ("lib", "main", "mod") else parts


def modules(folder):
    for file in sources(folder):
        yield from taken_apart(place(folder, file), file, without_tests(file))


def taken_apart(path, file, text):
    """A module, and those that stand inside it in braces."""
    at = 0
    while found := INLINE.search(text, at):
        end = item_end(text, found.end() - 1)
        yield from taken_apart((*path, found[1]), file, text[found.end() : end - 1])
        text, at = text[: found.start()] + blank(text[found.start() : end]) + text[end:], end
    yield Module(path, file, text)


def flattened(tree, prefix=""):
    """The paths of a use tree: a::{b, c::d} → a::b, a::c::d."""
    depth, part, parts = 0, "", []
    for char in tree:
        depth += (char == "{") - (char == "}")
        if char == "," and depth == 0:
            parts.append(part)
            part = ""
        else:
            part += char
    for part in filter(None, map(str.strip, parts + [part])):
        if "{" in part:
            head, rest = part.split("{", 1)
            yield from flattened(rest.rsplit("}", 1)[0], prefix + head.strip())
        else:
            yield prefix + part


def uses(text):
    """The paths of a text's `use` items, each with the name it has from there on."""
    for tree in re.findall(r"\buse\s+([^;]*);", text):
        for leaf in flattened(tree):
            path, _, name = leaf.partition(" as ")
            steps = path.removesuffix("::self").split("::")
            yield steps, name or steps[-1]


def paths(text):
    """Every path that a text says from `crate`, `super` or `self` on, used or written out."""
    yield from (steps for steps, _ in uses(text))
    said = re.sub(r"\buse\s+[^;]*;", "", text)
    yield from (found.split("::") for found in re.findall(r"(?<![\w:])(?:crate|super|self)(?:::\w+)+", said))


def resolved(path, steps):
    """Where a path leads from the root of its crate, or nothing where it does not begin inside it."""
    if steps[0] not in ("crate", "super", "self"):
        return None
    at = [] if steps[0] == "crate" else list(path)
    for step in steps:
        if step == "super":
            at.pop()
        elif step not in ("crate", "self"):
            at.append(step)
    return at
