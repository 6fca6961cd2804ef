"""Sends a model, a batch and an optimizer to another process without the bytes of their tensors: those travel as shapes.
Tensors that are one stay one (tied weights, parameters in an optimizer)."""
import io
import pickle

import torch


def facts_of(tensor):
    return dict(shape=tuple(tensor.shape), dtype=tensor.dtype, requires_grad=tensor.requires_grad,
                parameter=isinstance(tensor, torch.nn.Parameter), dense=tensor.layout == torch.strided,
                last=tensor.dim() == 4 and tensor.is_contiguous(memory_format=torch.channels_last)
                and not tensor.is_contiguous())


class Packer(pickle.Pickler):
    def __init__(self, file):
        super().__init__(file, protocol=4)
        self.numbers, self.tensors, self.alive = {}, [], []

    def persistent_id(self, thing):
        if not isinstance(thing, torch.Tensor):
            return None
        if id(thing) not in self.numbers:
            self.numbers[id(thing)] = len(self.tensors)
            self.tensors.append(facts_of(thing))
            # An object that is freed could give its number to another.
            self.alive.append(thing)
        return self.numbers[id(thing)]


def pack(thing):
    """Bytes that `unpack` makes the same thing of."""
    body = io.BytesIO()
    packer = Packer(body)
    packer.dump(thing)
    return pickle.dumps((packer.tensors, body.getvalue()), protocol=4)


class Unpacker(pickle.Unpickler):
    def __init__(self, file, tensors, device):
        super().__init__(file)
        self.tensors, self.device, self.made = tensors, device, {}

    def persistent_load(self, number):
        if number not in self.made:
            self.made[number] = made(self.tensors[number], self.device)
        return self.made[number]


def made(facts, device):
    form = torch.channels_last if facts["last"] else torch.contiguous_format
    tensor = torch.empty(facts["shape"], dtype=facts["dtype"], device=device, memory_format=form)
    if facts["parameter"]:
        return torch.nn.Parameter(tensor, requires_grad=facts["requires_grad"])
    return tensor.requires_grad_(facts["requires_grad"])


def unpack(parcel, device):
    tensors, body = pickle.loads(parcel)
    return Unpacker(io.BytesIO(body), tensors, device).load()
