"""The rooms of a crate: the modules at its top, the order that its lib.rs draws, and the arrows between them."""

import re

from .sources import modules, paths, read, resolved, uses, without_quotes, without_tests


def rooms(folder):
    """The modules at the top of a crate, each with those inside it."""
    found = {}
    for module in modules(folder):
        if module.path:
            found.setdefault(module.path[0], []).append(module)
    return found


def at_the_root(folder, found):
    """Where what stands at a crate's root comes from: `pub use error::RunError;`, and macros, which are always there."""
    lib = folder / "src/lib.rs"
    named = uses(without_tests(lib)) if lib.exists() else ()
    names = {name: steps[0] for steps, name in named if len(steps) > 1}
    for room, inside in found.items():
        for module in inside:
            names |= {macro: room for macro in re.findall(r"#\[macro_export\]\s*macro_rules! (\w+)", module.text)}
    return names


def arrows(folder, found):
    """(room, what it names at the root of its crate) → the file that does."""
    edges, root = {}, at_the_root(folder, found)
    for room, inside in found.items():
        for module in inside:
            for steps in paths(module.text):
                if to := resolved(module.path, steps):
                    edges.setdefault((room, to[0] if to[0] in found else root.get(to[0], to[0])), module.file)
    others = set(root.values()) - set(found)
    return {(room, to): file for (room, to), file in edges.items() if to != room and to not in others}


def drawn_lines(folder):
    lib = folder / "src/lib.rs"
    return re.findall(r"^//! *(.*◄─.*)$", read(lib), re.M) if lib.exists() else []


def drawn_order(folder):
    """The rooms from the floor up; those of one step, with commas between them, do not know each other."""
    steps = re.split(r"◄─", " ".join(drawn_lines(folder)))
    return [list(filter(None, map(str.strip, step.split(",")))) for step in steps if step.strip()]


def room_problems(name, folder, place):
    found = rooms(folder)
    edges = arrows(folder, found)
    known = {pair: file for pair, file in edges.items() if pair[1] in found}
    for room, to in sorted(set(edges) - set(known)):
        yield f"crates/{name}: {room} uses {to} ({place(edges[room, to])}), which stands in lib.rs: that only names what is in rooms"
    knots = circles(found, known)
    yield from (f"crates/{name}: a circle: {' → '.join(circle)}" for circle in knots)
    yield from drawing_problems(name, folder, found, known, place)
    if known and not knots and not drawn_order(folder):
        yield f"crates/{name}: lib.rs draws no order of its rooms; one that holds: {an_order(found, known)}"


def drawing_problems(name, folder, found, edges, place):
    """Arrows that the drawn order does not allow, and rooms that it leaves out or makes up."""
    steps = drawn_order(folder)
    rank = {room: step for step, beside in enumerate(steps) for room in beside}
    for (room, to), file in sorted(edges.items()):
        if room in rank and to in rank and rank[to] >= rank[room]:
            where = "above" if rank[to] > rank[room] else "beside"
            yield f"crates/{name}: {room} uses {to} ({place(file)}), which stands {where} it"
    if steps:
        yield from (f"crates/{name}: {room} has no place in the order that lib.rs draws" for room in sorted(set(found) - set(rank)))
        yield from (f"crates/{name}: lib.rs draws {room}, which is not there" for room in sorted(set(rank) - set(found)))


def reached(nodes, edges):
    """From every node all that arrows lead to."""
    reach = {node: {to for (of, to) in edges if of == node} for node in nodes}
    for _ in nodes:
        for node in nodes:
            reach[node] |= set().union(*(reach[to] for to in reach[node]))
    return reach


def circles(nodes, edges):
    """One way round for every knot of rooms that use each other: the shortest through its first."""
    reach = reached(nodes, edges)
    knots = {tuple(sorted(n for n in nodes if n in reach[node] and node in reach[n])) for node in nodes if node in reach[node]}
    return [way_round(knot, edges) for knot in sorted(knots)]


def way_round(knot, edges):
    ways = [[knot[0]]]
    for way in ways:
        for to in sorted(to for (of, to) in edges if of == way[-1] and to in knot):
            if to == knot[0]:
                return [*way, to]
            if to not in way:
                ways.append([*way, to])


def an_order(nodes, edges):
    """Every room one step above the highest that it uses."""
    steps, left = [], set(nodes)
    while left:
        steps.append(sorted(node for node in left if not any(of == node and to in left for (of, to) in edges)))
        left -= set(steps[-1])
    return " ◄─ ".join(", ".join(step) for step in steps)
