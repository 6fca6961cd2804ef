"""The smallest Parquet file: one row group, plain pages, numbers and texts. Enough to be mutated."""

import struct

DOUBLE, BYTES = 5, 6
I32, I64, BINARY, LIST, STRUCT = 5, 6, 8, 9, 12


def table(columns):
    """Columns of floats or of texts, all as long, none missing."""
    body, chunks = bytearray(b"PAR1"), []
    rows = len(next(iter(columns.values())))
    for name, values in columns.items():
        kind = BYTES if isinstance(values[0], str) else DOUBLE
        plain = b"".join(struct.pack("<d", v) if kind == DOUBLE else struct.pack("<I", len(v.encode())) + v.encode() for v in values)
        page = record([(1, I32, 0), (2, I32, len(plain)), (3, I32, len(plain)),
                       (5, STRUCT, record([(1, I32, rows), (2, I32, 0), (3, I32, 3), (4, I32, 3)]))])
        offset = len(body)
        body += page + plain
        meta = record([(1, I32, kind), (2, LIST, (I32, [number(0)])), (3, LIST, (BINARY, [text(name)])), (4, I32, 0),
                       (5, I64, rows), (6, I64, len(page) + len(plain)), (7, I64, len(page) + len(plain)), (9, I64, offset)])
        chunks.append(record([(2, I64, offset), (3, STRUCT, meta)]))
    leaf = lambda name, values: record([(1, I32, BYTES if isinstance(values[0], str) else DOUBLE), (3, I32, 0), (4, BINARY, name)]
                                       + ([(6, I32, 0)] if isinstance(values[0], str) else []))
    schema = [record([(4, BINARY, "m"), (5, I32, len(columns))])] + [leaf(*column) for column in columns.items()]
    group = record([(1, LIST, (STRUCT, chunks)), (2, I64, len(body)), (3, I64, rows)])
    footer = record([(1, I32, 1), (2, LIST, (STRUCT, schema)), (3, I64, rows), (4, LIST, (STRUCT, [group]))])
    return bytes(body + footer + struct.pack("<I", len(footer)) + b"PAR1")


def record(fields):
    """Thrift's compact form of a struct."""
    out, last = bytearray(), 0
    for index, kind, value in fields:
        out.append((index - last) << 4 | kind)
        out += {I32: number, I64: number, BINARY: text, STRUCT: bytes, LIST: lambda v: items(*v)}[kind](value)
        last = index
    return bytes(out) + b"\0"


def items(kind, values):
    head = bytes([len(values) << 4 | kind]) if len(values) < 15 else bytes([0xF0 | kind]) + varint(len(values))
    return head + b"".join(values)


def number(value):
    return varint(value << 1 if value >= 0 else ((-value) << 1) - 1)


def text(value):
    return varint(len(value.encode())) + value.encode()


def varint(value):
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes(out + bytes([value]))
