"""What PyTorch allocates around convolutions on this GPU, so that the stand-in's workspaces can be derived and held
against what is true: `convolutions.py OUT.jsonl [SECONDS]`. One line a convolution: the shapes, and for the forward
pass and both gradients the allocations, the result's first. Those of known networks come first, then dilated ones and
others at random."""
import json
import random
import sys
import time

import torch

KINDS = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
FUNCTIONS = {1: torch.nn.functional.conv1d, 2: torch.nn.functional.conv2d, 3: torch.nn.functional.conv3d}


def known():
    """Of the measured trainings and of networks that everybody has."""
    for net in of_models():
        yield from (dict(net, kind=kind, last=last) for kind, last in (("f32", False), ("bf16", False), ("bf16", True)))
    for kind in KINDS:
        for batch in (1, 2, 4, 8, 12, 16, 24, 32, 48, 64):
            for inputs, outputs in ((64, 128), (128, 256)):
                yield dict(batch=batch, inputs=inputs, outputs=outputs, extents=[60], kernel=3, stride=1, padding=1, groups=1,
                           kind=kind, last=False)
    for kind in ("f32", "f16", "bf16"):
        for last in (False, True):
            for inputs, outputs, extent, kernel, stride, padding in RESNET:
                yield dict(batch=32, inputs=inputs, outputs=outputs, extents=[extent, extent], kernel=kernel,
                           stride=stride, padding=padding, groups=1, kind=kind, last=last)


RESNET = [(3, 64, 224, 7, 2, 3), (64, 64, 56, 1, 1, 0), (64, 64, 56, 3, 1, 1), (64, 256, 56, 1, 1, 0),
          (256, 128, 56, 1, 1, 0), (128, 128, 56, 3, 2, 1), (256, 512, 56, 1, 2, 0), (512, 128, 28, 1, 1, 0),
          (128, 128, 28, 3, 1, 1), (256, 256, 14, 3, 1, 1), (512, 512, 7, 3, 1, 1), (2048, 512, 7, 1, 1, 0),
          (3, 768, 224, 32, 32, 0), (3, 768, 224, 16, 16, 0)]


def of_models():
    """Every convolution of some networks of torchvision, where that is installed: dilated and grouped ones among them."""
    try:
        from torchvision import models
    except ImportError:
        return
    makers = [(8, 256, lambda: models.segmentation.deeplabv3_resnet50(weights=None, weights_backbone=None)),
              (8, 256, lambda: models.segmentation.fcn_resnet50(weights=None, weights_backbone=None)),
              (32, 224, models.resnet18), (32, 224, models.convnext_tiny), (32, 224, models.efficientnet_b0)]
    seen = set()
    for batch, extent, make in makers:
        for net in shapes(make, batch, extent):
            if str(net) not in seen:
                seen.add(str(net))
                yield net


def shapes(make, batch, extent):
    found = []

    def note(layer, inputs, _):
        found.append(dict(batch=inputs[0].shape[0], inputs=layer.in_channels, outputs=layer.out_channels,
                          extents=list(inputs[0].shape[2:]), kernel=layer.kernel_size[0], stride=layer.stride[0],
                          padding=layer.padding[0], dilation=layer.dilation[0], groups=layer.groups))

    with torch.device("meta"):
        model = make()
        for layer in model.modules():
            if isinstance(layer, torch.nn.Conv2d):
                layer.register_forward_hook(note)
        model(torch.zeros(batch, 3, extent, extent))
    return found


def dilated():
    """Mostly 3 x 3 as segmentation has them, whose output is as large as their input."""
    pick = random.Random(3).choice
    for _ in range(400):
        dilation = pick([2, 2, 4, 6, 12, 18, 24, 36])
        yield dict(batch=pick([1, 2, 4, 8, 16]), inputs=pick([32, 64, 128, 256, 512, 2048]), outputs=pick([32, 64, 256, 512]),
                   extents=[pick([16, 28, 32, 33, 64, 65])] * 2, kernel=3, stride=1, padding=dilation, dilation=dilation, groups=1,
                   kind=pick(list(KINDS)), last=pick([True, False]))


def grid():
    yield from known()
    yield from dilated()
    pick = random.Random(2).choice
    while True:
        dimensions = pick([1, 1, 2, 2, 2, 2, 3])
        inputs, outputs = pick([1, 3, 8, 16, 32, 64, 96, 128, 256, 512]), pick([8, 16, 32, 64, 96, 128, 256, 512])
        kernel = pick([1, 3, 3, 3, 5, 7])
        groups = pick([1, 1, 1, 1, inputs if outputs % inputs == 0 else 1])
        extent = pick({1: [16, 60, 128, 1000, 4000], 2: [7, 14, 28, 32, 56, 64, 112], 3: [4, 8, 16]}[dimensions])
        yield dict(batch=pick([1, 2, 4, 8, 16, 32, 64]), inputs=inputs, outputs=outputs, extents=[extent] * dimensions,
                   kernel=kernel, stride=pick([1, 1, 2]), padding=kernel // 2, groups=groups, kind=pick(list(KINDS)),
                   last=dimensions == 2 and pick([True, False]))


def allocations(action):
    torch.cuda.memory._record_memory_history(max_entries=10000, stacks="python", context=None)
    result = action()
    events = torch.cuda.memory._snapshot()["device_traces"][0]
    torch.cuda.memory._record_memory_history(enabled=None)
    return [event["size"] for event in events if event["action"] == "alloc"], result


def one(net):
    form = torch.channels_last if net["last"] else torch.contiguous_format
    make = lambda *shape: torch.zeros(shape, device="cuda", dtype=KINDS[net["kind"]]).to(memory_format=form)
    x = make(net["batch"], net["inputs"], *net["extents"])
    w = make(net["outputs"], net["inputs"] // net["groups"], *[net["kernel"]] * len(net["extents"]))
    settings = dict(stride=net["stride"], padding=net["padding"], groups=net["groups"], dilation=net.get("dilation", 1))
    forward = lambda: FUNCTIONS[len(net["extents"])](x, w, None, **settings)
    forward()  # cuDNN's own first-time allocations
    sizes, y = allocations(forward)
    many = [1] * len(net["extents"])
    def back(*mask):
        action = lambda: torch.ops.aten.convolution_backward(
            y, x, w, None, [net["stride"]] * len(many), [net["padding"]] * len(many), [net.get("dilation", 1)] * len(many),
            False, [0] * len(many), net["groups"], mask)
        action()
        return allocations(action)[0]
    return dict(forward=sizes, input_gradient=back(True, False, False), weight_gradient=back(False, True, False))


def main(out, seconds=60):
    torch.set_float32_matmul_precision("high")
    deadline = time.time() + float(seconds)
    with open(out, "w") as file:
        for net in grid():
            line = dict(net)
            try:
                line.update(one(net))
            except Exception as error:
                line["error"] = repr(error)[:200]
            file.write(json.dumps(line) + "\n")
            if time.time() > deadline:
                break


if __name__ == "__main__":
    main(*sys.argv[1:])
