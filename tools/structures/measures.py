"""Lengths of functions, and names that stand for several types."""

import re
from collections import defaultdict

from .sources import item_end, sources, without_tests

# A name that is given to more types than these says nothing by itself.
MOST_MEANINGS = 2


def functions(text):
    """Lines of every function body."""
    for match in re.finditer(r"^[ \t]*(?:pub(?:\([^)]*\))? )?(?:const )?(?:unsafe )?(?:extern \"C\" )?fn (\w+)", text, re.M):
        opened, ended = text.find("{", match.end()), text.find(";", match.end())
        if opened >= 0 and not 0 <= ended < opened:
            yield match[1], text.count("\n", opened, item_end(text, opened)) + 1


def lengths(found):
    sizes = []
    for folder in found.values():
        for file in sources(folder):
            sizes += [(lines, name, file) for name, lines in functions(without_tests(file))]
    return sorted(sizes, key=lambda size: size[0])


def meanings(found):
    """Name → the files that each declare a type of that name."""
    names = defaultdict(list)
    for folder in found.values():
        for file in sources(folder):
            for name in re.findall(r"^(?:pub(?:\([^)]*\))? )?(?:struct|enum|union|trait|type) (\w+)", without_tests(file), re.M):
                names[name].append(file)
    return names


def measures(found, place):
    sizes = lengths(found)
    at = lambda share: sizes[min(len(sizes) - 1, int(share * len(sizes)))][0]
    yield f"{len(sizes)} functions: median {at(0.5)} lines, p90 {at(0.9)}, p99 {at(0.99)}, longest {sizes[-1][0]}"
    yield from (f"  {lines:>3} {name}  {place(file)}" for lines, name, file in sizes[-5:])
    names = meanings(found)
    several = sorted((name for name in names if len(names[name]) > MOST_MEANINGS), key=lambda name: (-len(names[name]), name))
    yield f"{len(names)} names of types, {len(several)} with more than {MOST_MEANINGS} meanings"
    yield from (f"  {len(names[name]):>3} {name}  {', '.join(str(place(file)) for file in names[name])}" for name in several)
