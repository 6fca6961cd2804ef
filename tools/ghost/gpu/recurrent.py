"""Asks cuDNN on this GPU for the sizes of recurrent layers, and lets PyTorch run some, so that the stand-in's formulas
can be derived and held against what is true: `recurrent.py OUT.jsonl [SECONDS]`. One line a network."""
import ctypes
import json
import random
import sys
import time

import torch

KINDS = {"f32": 0, "f16": 2, "bf16": 9}
TORCH_KINDS = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
CELLS = {"tanh": 1, "lstm": 2, "gru": 3}
STANDARD, LINEAR, DOUBLE_BIAS, PADDED, TRAINING = 0, 0, 2, 1, 1
DEFAULT_MATH, TENSOR_MATH, PLAIN_MATH = 0, 1, 3


def library():
    torch.backends.cudnn.version()
    paths = {line.split()[-1] for line in open("/proc/self/maps") if "libcudnn.so" in line}
    return ctypes.CDLL(paths.pop()) if paths else ctypes.CDLL("libcudnn.so.9")


class Cudnn:
    def __init__(self):
        self.library = library()
        self.handle = self.make("cudnnCreate")
        self.network = self.make("cudnnCreateRNNDescriptor")
        self.data = self.make("cudnnCreateRNNDataDescriptor")
        size = ctypes.c_size_t()
        self.call("cudnnDropoutGetStatesSize", self.handle, ctypes.byref(size))
        self.states_bytes = size.value
        self.states = torch.empty(size.value, dtype=torch.uint8, device="cuda")
        self.dropouts = {share: self.dropout(share) for share in (0.0, 0.1)}

    def make(self, name):
        place = ctypes.c_void_p()
        self.call(name, ctypes.byref(place))
        return place

    def call(self, name, *arguments):
        status = getattr(self.library, name)(*arguments)
        if status:
            raise RuntimeError(f"{name}: {status}")

    def dropout(self, share):
        descriptor = self.make("cudnnCreateDropoutDescriptor")
        states = ctypes.c_void_p(self.states.data_ptr() if share else None)
        self.call("cudnnSetDropoutDescriptor", descriptor, self.handle, ctypes.c_float(share), states,
                  ctypes.c_size_t(self.states_bytes if share else 0), ctypes.c_ulonglong(1))
        return descriptor

    def sizes(self, net):
        kind = KINDS[net["kind"]]
        math = TENSOR_MATH if kind else DEFAULT_MATH if net["tf32"] else PLAIN_MATH
        self.call("cudnnSetRNNDescriptor_v8", self.network, STANDARD, CELLS[net["cell"]], DOUBLE_BIAS,
                  int(net["both"]), LINEAR, kind, KINDS["f32"], math, net["input"], net["hidden"],
                  net["hidden"], net["layers"], self.dropouts[net["dropout"]], PADDED)
        lengths = (ctypes.c_int * net["batch"])(*[net["steps"]] * net["batch"])
        self.call("cudnnSetRNNDataDescriptor", self.data, kind, 0, net["steps"], net["batch"], net["input"], lengths,
                  None)
        work, kept, weights = ctypes.c_size_t(), ctypes.c_size_t(), ctypes.c_size_t()
        self.call("cudnnGetRNNTempSpaceSizes", self.handle, self.network, TRAINING, self.data, ctypes.byref(work),
                  ctypes.byref(kept))
        self.call("cudnnGetRNNWeightSpaceSize", self.handle, self.network, ctypes.byref(weights))
        idle = ctypes.c_size_t()
        self.call("cudnnGetRNNTempSpaceSizes", self.handle, self.network, 0, self.data, ctypes.byref(idle), None)
        return dict(work=work.value, kept=kept.value, weights=weights.value, inference_work=idle.value)


def grid():
    """The networks of the measured trainings first, then others at random."""
    base = dict(cell="lstm", both=True, layers=2, input=256, hidden=256, steps=60, dropout=0.1)
    for kind in KINDS:
        for tf32 in (True, False):
            for batch in (1, 2, 3, 4, 6, 8, 12, 16, 20, 24, 32, 40, 48, 56, 64, 96, 128, 256, 512, 1024):
                yield dict(base, kind=kind, batch=batch, tf32=tf32)
    pick = random.Random(1).choice
    while True:
        yield dict(cell=pick(list(CELLS)), both=pick([True, False]), layers=pick([1, 1, 2, 2, 3, 4]),
                   input=pick([1, 8, 40, 64, 80, 128, 256, 300, 512, 1024]), dropout=pick([0.0, 0.1]),
                   hidden=pick([8, 32, 64, 100, 128, 200, 256, 384, 512, 640, 1024, 1500]), tf32=pick([True, False]),
                   batch=pick([1, 2, 4, 7, 8, 16, 20, 32, 64, 100, 128, 256]), kind=pick(list(KINDS)),
                   steps=pick([1, 2, 10, 30, 35, 60, 100, 128, 256, 500]))


def events():
    return torch.cuda.memory._snapshot()["device_traces"][0]


def by_torch(net):
    """What PyTorch allocates in the forward and the backward pass of the same network, in order."""
    torch.backends.cudnn.allow_tf32 = net["tf32"]
    cell = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU, "tanh": torch.nn.RNN}[net["cell"]]
    layer = cell(net["input"], net["hidden"], net["layers"], bidirectional=net["both"],
                 dropout=net["dropout"] if net["layers"] > 1 else 0.0).to("cuda", TORCH_KINDS[net["kind"]])
    x = torch.zeros(net["steps"], net["batch"], net["input"], device="cuda", dtype=TORCH_KINDS[net["kind"]])
    x.requires_grad_()
    layer(x)
    torch.cuda.memory._record_memory_history(max_entries=10000, stacks="python", context=None)
    y, _ = layer(x)
    forward = [event["size"] for event in events() if event["action"] == "alloc"]
    y.backward(y.detach())
    everything = [event["size"] for event in events() if event["action"] == "alloc"]
    torch.cuda.memory._record_memory_history(enabled=None)
    return dict(torch_forward=forward, torch_backward=everything[len(forward):])


def main(out, seconds=40):
    cudnn, deadline = Cudnn(), time.time() + float(seconds)
    with open(out, "w") as file:
        file.write(json.dumps(dict(version=torch.backends.cudnn.version(), states=cudnn.states_bytes)) + "\n")
        for place, net in enumerate(grid()):
            line = dict(net)
            try:
                line.update(cudnn.sizes(net))
                small = net["batch"] * net["steps"] * net["hidden"] * net["layers"] < 1 << 23
                if place < 120 and place % 3 == 0 or place >= 120 and place % 100 == 0 and small:
                    line.update(by_torch(net))
            except Exception as error:
                line["error"] = repr(error)[:200]
            file.write(json.dumps(line) + "\n")
            if time.time() > deadline or place >= 12000:
                break


if __name__ == "__main__":
    main(*sys.argv[1:])
