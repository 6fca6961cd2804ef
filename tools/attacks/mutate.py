"""Damage: to bytes, to lines of text, to trees of JSON. A function of a random stream, so that it can be made again."""

import copy
import json

ODD = ["", "-1", "0", "1e308", "-1e400", "NaN", "inf", "99999999999999999999999", "2147483648", "0.5", "null", "\"", "'", "\\",
       "[]", "{}", "true", "../../etc/passwd", "/dev/zero", "\u0000", "\u202e算é", "a" * 5000, "{{", "[[", "=", "#", "\x1b[2J", "\r", "\t"]
ODD_VALUES = [None, True, -1, 0, 1, 2**31, 2**53 + 1, 2**63, 1e308, 0.5, "", "x", "../x", "\u0000", [], {}, [[]], ["a"] * 50, "A" * 3000]


def damaged_bytes(data, rng):
    """Some of its bytes changed, dropped, doubled, moved or cut off."""
    data = bytearray(data)
    for _ in range(rng.choice([1, 1, 1, 2, 4, 16])):
        if not data:
            return bytes(rng.randbytes(rng.randint(0, 64)))
        at = rng.randrange(len(data))
        span = min(len(data) - at, rng.choice([1, 1, 4, 8, 100, 4096]))
        match rng.randrange(8):
            case 0: data[at] ^= 1 << rng.randrange(8)
            case 1: data[at] = rng.randrange(256)
            case 2: del data[at:at + span]
            case 3: data[at:at] = data[at:at + span]
            case 4: data[at:at + span] = rng.choice([b"\0", b"\xff", b"\x7f", b" "]) * span
            case 5: del data[at:]
            case 6: data[at:at] = rng.randbytes(span)
            case 7: data[at:at + span] = rng.choice(ODD).encode()
    return bytes(data)


def damaged_text(text, rng):
    """Lines dropped, doubled, swapped; words replaced by odd ones."""
    lines = text.split("\n")
    for _ in range(rng.choice([1, 1, 2, 5])):
        at = rng.randrange(len(lines))
        match rng.randrange(6):
            case 0 if len(lines) > 1: del lines[at]
            case 1: lines.insert(at, lines[rng.randrange(len(lines))])
            case 2: lines[at] = damaged_line(lines[at], rng)
            case 3: lines[at] = rng.choice(ODD)
            case 4: lines[at] = lines[at] + rng.choice(ODD)
            case _: lines[at] = damaged_bytes(lines[at].encode(), rng).decode(errors="replace")
    return rng.choice(["\n", "\n", "\r\n"]).join(lines).encode(errors="surrogateescape")


def damaged_line(line, rng):
    for mark in ("=", ",", ":", " "):
        if mark in line:
            parts = line.split(mark)
            parts[rng.randrange(len(parts))] = " " + rng.choice(ODD) + " "
            return mark.join(parts)
    return rng.choice(ODD)


def damaged_json(text, rng):
    """Values replaced, keys dropped, lists lengthened."""
    tree = json.loads(text)
    for _ in range(rng.choice([1, 1, 2, 4])):
        holder, key = place(tree, rng)
        if holder is None:
            return json.dumps(odd(rng)).encode()
        match rng.randrange(6):
            case 0 if isinstance(holder, dict): del holder[key]
            case 1 if isinstance(holder, list): holder.insert(key, odd(rng))
            case 2 if isinstance(holder[key], (int, float)): holder[key] = holder[key] * rng.choice([-1, 2, 1000, 2**40]) + rng.choice([-1, 0, 1])
            case _: holder[key] = odd(rng)
    return json.dumps(tree).encode()


def odd(rng):
    """Its own copy each time: one that is put into itself would have no end."""
    return copy.deepcopy(rng.choice(ODD_VALUES))


def place(tree, rng):
    """A random place in it, none rarer for lying deep."""
    places, open_ = [], [tree]
    while open_ and len(places) < 20000:
        node = open_.pop()
        keys = list(node) if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else []
        for key in keys:
            places.append((node, key))
            open_.append(node[key])
    return rng.choice(places) if places else (None, None)


def damaged_tensors(data, rng):
    """A safetensors file with another header, or other bytes."""
    if rng.random() < 0.5 or len(data) < 8:
        return damaged_bytes(data, rng)
    length = int.from_bytes(data[:8], "little")
    header = damaged_json(data[8:8 + length].decode(), rng)
    told = len(header) if rng.random() < 0.8 else rng.choice([0, 1, 2**63, 2**64 - 1, length])
    return told.to_bytes(8, "little") + header + data[8 + length:]
