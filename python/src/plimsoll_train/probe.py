"""Runs inside `plimsoll ghost`: unpacks a training and trains until it is stopped. `python -m plimsoll_train.probe FILE`."""
import multiprocessing.spawn
import pickle
import sys


def call(model, batch):
    if isinstance(batch, dict) or hasattr(batch, "keys"):
        return model(**batch)
    return model(*batch) if isinstance(batch, (tuple, list)) else model(batch)


def loss_of(task, output):
    import torch

    if task["loss"] is not None:
        return task["loss"](output, task["batch"])
    if getattr(output, "loss", None) is not None:
        return output.loss
    tensors = output.values() if isinstance(output, dict) else output if isinstance(output, (tuple, list)) else [output]
    floats = [part.float().sum() for part in tensors if isinstance(part, torch.Tensor) and part.is_floating_point()]
    return sum(floats)


def train(task):
    import torch

    model, optimizer, accumulate = task["model"].train(), task["optimizer"], task["accumulate"]
    half = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(task["precision"])
    scaler = torch.amp.GradScaler(enabled=half is torch.float16)
    while True:
        for _ in range(accumulate):
            with torch.autocast("cuda", half or torch.bfloat16, enabled=half is not None):
                loss = loss_of(task, call(model, task["batch"])) / accumulate
            scaler.scale(loss).backward()
            del loss
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)


def main(path):
    with open(path, "rb") as file:
        parcel = pickle.load(file)
    # What was defined in the script that asks lives in `__main__`: it is imported as multiprocessing would.
    multiprocessing.spawn.prepare(parcel["preparation"])
    from .parcel import unpack

    train(unpack(parcel["task"], "cuda"))


if __name__ == "__main__":
    main(sys.argv[1])
