"""FakeGPU's own estimator on measured trainings, for a comparison: `fakegpu_rows.py MEASURED.jsonl OUT.jsonl [EVERY [FIRST]]`
with FakeGPU's source on PYTHONPATH. It is used as its README says: `estimate_module_memory(model, inputs, mode="training")`.
A row that it refuses, or that takes longer than LIMIT seconds, is written down as such."""
import json
import os
import signal
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import torch
import rows
from fakegpu import estimate_module_memory
from fakegpu.memory_estimator import SUPPORTED_OPTIMIZERS

LIMIT = int(os.environ.get("LIMIT", "120"))
OPTIMIZERS = {"adamw-fused": "adamw", "sgd-momentum": "sgd_momentum"}


class Loss(torch.nn.Module):
    """The whole of a micro-step up to the loss, as the measured training computes it."""

    def __init__(self, row, model):
        super().__init__()
        self.row, self.model = row, model
        self.half = {"amp-bf16": torch.bfloat16, "amp-fp16": torch.float16}.get(row["prec"])

    def forward(self, *batch):
        with torch.autocast("cuda", self.half or torch.bfloat16, enabled=self.half is not None):
            if isinstance(self.names, list):
                return rows.loss_of(self.row, self.model, dict(zip(self.names, batch)))
            return rows.loss_of(self.row, self.model, batch if len(batch) > 1 else batch[0])


def without_values(make):
    """Random values cost minutes on a CPU, and nobody looks at them."""
    names = ("normal_", "uniform_", "zero_", "fill_", "trunc_normal_")
    kept = {name: getattr(torch.Tensor, name) for name in names if hasattr(torch.Tensor, name)}
    for name in kept:
        setattr(torch.Tensor, name, lambda tensor, *_, **__: tensor)
    try:
        return make()
    finally:
        for name, original in kept.items():
            setattr(torch.Tensor, name, original)


def estimate(row):
    device = torch.device("cpu")
    if OPTIMIZERS.get(row["opt"], row["opt"]) not in SUPPORTED_OPTIMIZERS:
        raise ValueError(f"FakeGPU does not know {row['opt']}")
    rows.ids = lambda limit, *shape: torch.zeros(shape, dtype=torch.int64, device=device)
    original, torch.randn = torch.randn, lambda *shape, **more: torch.zeros(shape, dtype=more.get("dtype"))
    model = without_values(lambda: rows.model_of(row, str(device)))
    batch = rows.batch_of(row)
    torch.randn = original
    module = Loss(row, model)
    module.names = list(batch) if isinstance(batch, dict) else None
    inputs = tuple(batch.values()) if isinstance(batch, dict) else batch if isinstance(batch, tuple) else (batch,)
    optimizer = OPTIMIZERS.get(row["opt"], row["opt"])
    return estimate_module_memory(module, inputs, mode="training", loss_fn=lambda loss: loss, optimizer=optimizer,
                                  target_device="cuda", target_profile=os.environ.get("PROFILE"))


def late(*_):
    raise TimeoutError(f"more than {LIMIT} s")


def main(measured, out, every=9, first=0):
    chosen = [json.loads(line) for line in open(measured)][int(first) :: int(every)]
    signal.signal(signal.SIGALRM, late)
    with open(out, "w") as file:
        for row in chosen:
            started, found = time.time(), dict(row)
            signal.alarm(LIMIT)
            try:
                report = estimate(row)
                found["fakegpu"] = {key: value for key, value in report.items() if key.endswith("bytes")}
            except BaseException as error:
                found["error"] = repr(error)[:300]
            signal.alarm(0)
            found["seconds"] = round(time.time() - started, 1)
            file.write(json.dumps(found) + "\n")
            file.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
