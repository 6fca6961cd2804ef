"""What `plimsoll ghost --json` answered, as Python has it."""
from dataclasses import dataclass, field


class PlimsollError(RuntimeError):
    """The question could not be answered."""


class DoesNotFit(MemoryError):
    """The training would run out of the card's memory."""

    def __init__(self, answer):
        super().__init__(str(answer))
        self.answer = answer


@dataclass(frozen=True)
class Answer:
    """True where the training fits."""

    fits: bool
    card: str
    peak_allocated_bytes: int
    peak_reserved_bytes: int
    # Whether sizes went into it that are not known, so that it may take more.
    lower_bound: bool
    # PyTorch's own words, where it runs out of memory.
    message: str | None
    # Everything that `plimsoll ghost --json` says.
    report: dict = field(repr=False)

    @classmethod
    def of(cls, report):
        died = report.get("out_of_memory") or {}
        whole = report.get("without_limit") or report
        return cls(report["fits"], report["card"]["name"], whole["peak_allocated_bytes"], whole["peak_reserved_bytes"],
                   report["lower_bound"], died.get("message"), report)

    def __bool__(self):
        return self.fits

    def __str__(self):
        word = "fits" if self.fits else "does not fit"
        text = f"{word} {self.card}: {size(self.peak_allocated_bytes)} allocated, {size(self.peak_reserved_bytes)} reserved"
        kinds = ((self.report.get("without_limit") or self.report).get("peak") or {}).get("kinds", [])
        parts = ", ".join(f"{share['name']} {size(share['bytes'])}" for share in kinds[:4])
        lines = [text, f"at the peak: {parts}" if parts else "", self.message or ""]
        return "\n".join(line for line in lines if line)


def size(count):
    mebibytes = count / 2**20
    return f"{mebibytes:.1f} MiB" if mebibytes < 1024 else f"{mebibytes / 1024:.2f} GiB"
