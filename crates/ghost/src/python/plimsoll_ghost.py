"""The side of plimsoll ghost that lives in the user's process.

It changes nothing that the program computes or allocates. PyTorch's own memory history is switched on; calls of
modules get a frame that carries the module's path, so that the history knows it; optimizer steps are counted, and at
each the addresses of weights, gradients and optimizer state are written down. Values that come back from the card are
invented, since nothing was computed: see `Answers`.
"""
import atexit
import ctypes
import importlib
import importlib.abc
import importlib.machinery
import json
import multiprocessing.util
import os
import pickle
import signal
import sys
import threading
import traceback
import types
import warnings
import weakref

OUT = os.environ.get("PLIMSOLL_GHOST_OUT", "")
STEPS = int(os.environ.get("PLIMSOLL_GHOST_STEPS", "3"))
WORLD = int(os.environ.get("PLIMSOLL_GHOST_WORLD", "0"))
# Steps at which addresses are written down; later ones repeat what these showed.
DESCRIBED_STEPS = 5
# Events of the history that are kept, the last ones: more than a training needs, and little enough to be held and written.
MOST_EVENTS = 2_000_000


class AfterImport(importlib.abc.MetaPathFinder):
    """Calls a function as soon as torch has been imported."""

    def __init__(self, then):
        self.then = then

    def find_spec(self, name, path=None, target=None):
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def exec_module(module):
                run(module)
                self.then(module)

            spec.loader.exec_module = exec_module
        return spec


def wait_for_torch():
    sys.meta_path.insert(0, AfterImport(install))


class Notes:
    """Lines of JSON, one file a process, written at once: a process that is killed leaves what it knew."""

    def __init__(self):
        self.pid = os.getpid()
        self.lock = threading.Lock()

    def add(self, kind, **facts):
        if os.getpid() != self.pid:
            return
        line = json.dumps({"note": kind, **facts}) + "\n"
        with self.lock, open(os.path.join(OUT, f"{self.pid}.notes"), "a") as file:
            file.write(line)


class Paths:
    """Gives every call of a module a frame that is named after the module's path."""

    def __init__(self, torch):
        self.module = torch.nn.Module
        self.call = torch.nn.Module.__call__
        self.named = {}
        self.roots = weakref.WeakSet()
        self.depth = threading.local()

    def start(self):
        paths = self

        def __call__(module, *args, **kwargs):
            return paths.frame_of(module)(paths.call, module, args, kwargs)

        __call__.plimsoll_paths = self
        self.module.__call__ = __call__

    def stop(self):
        if hasattr(self.module.__call__, "plimsoll_paths"):
            self.module.__call__ = self.call

    def frame_of(self, module):
        known = self.named.get(id(module))
        if known is None or known[0]() is not module:
            self.name_all(module)
            known = self.named[id(module)]
        return known[1]

    def name_all(self, root):
        """A module that no known one contains is a root; everything inside it is named from there."""
        self.roots.add(root)
        for path, module in root.named_modules():
            self.named[id(module)] = (weakref.ref(module), frame_called(path or type(root).__name__))


def frame_called(name):
    """A function that calls another from a frame of this name."""

    def call(function, module, args, kwargs):
        return function(module, *args, **kwargs)

    changes = {"co_name": name, "co_filename": "plimsoll:module"}
    if sys.version_info >= (3, 11):
        changes["co_qualname"] = name
    return types.FunctionType(call.__code__.replace(**changes), {})


class Steps:
    """Counts optimizer steps, and stops the program after enough of them."""

    def __init__(self, ghost):
        self.ghost = ghost
        self.counts = weakref.WeakKeyDictionary()
        self.done = 0

    def start(self):
        hooks = importlib.import_module("torch.optim.optimizer")
        hooks.register_optimizer_step_pre_hook(self.before)
        hooks.register_optimizer_step_post_hook(self.after)

    def before(self, optimizer, args, kwargs):
        self.ghost.optimizers.add(optimizer)
        if self.done < DESCRIBED_STEPS:
            self.ghost.describe("before_step", step=self.done + 1)

    def after(self, optimizer, args, kwargs):
        # Programs step on several threads, too: whoever comes while one of them ends the program waits for that.
        with self.ghost.ending:
            self.count(optimizer)

    def count(self, optimizer):
        self.counts[optimizer] = self.counts.get(optimizer, 0) + 1
        self.ghost.went_on()
        if self.counts[optimizer] <= self.done:
            return
        self.done = self.counts[optimizer]
        self.ghost.describe("step", step=self.done, tensors=self.done <= DESCRIBED_STEPS)
        if STEPS and self.done >= STEPS:
            self.ghost.finish("steps")
            leave(0)


def leave(code):
    """Without running anything more of the program."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:
            pass
    os._exit(code)


class Ghost:
    def __init__(self, torch):
        self.torch = torch
        self.notes = Notes()
        self.paths = Paths(torch)
        self.optimizers = weakref.WeakSet()
        self.finished = False
        # Functions whose sizes depend on values that are not there.
        self.guessed_sizes = set()
        # Whether memory ran out, and no optimizer has stepped since.
        self.out = False
        self.ending = threading.RLock()
        self.library = ctypes.CDLL(None)

    def start_recording(self):
        """As soon as the program itself starts CUDA, and not before: a process that only forks must stay clean."""
        memory = self.torch.cuda.memory
        memory._record_memory_history(enabled="all", context="alloc", stacks="python", max_entries=MOST_EVENTS)
        self.torch._C._cuda_attach_out_of_memory_observer(self.out_of_memory)
        self.notes.add("cuda")
        atexit.register(self.finish, "end")
        # A child that multiprocessing forked leaves without what atexit knows.
        multiprocessing.util.Finalize(None, self.finish, args=("end",), exitpriority=0)

    def begin_again(self):
        """In a child that was forked: it may train, if its parent has not used CUDA."""
        if self.torch.cuda.is_initialized():
            return
        self.notes = Notes()
        self.ending = threading.RLock()
        self.finished = False
        self.notes.add("torch", version=self.torch.__version__, cuda=self.torch.version.cuda)

    def out_of_memory(self, device, wanted, total, free):
        self.out = True
        self.describe("oom", wanted=wanted, total=total, free=free, stack=stack_of_program())

    def went_on(self):
        """A step of any optimizer: steps that repeat earlier ones, of a new optimizer, are not written down otherwise."""
        if self.out:
            self.out = False
            self.notes.add("went_on")

    def counters(self):
        return self.torch._C._cuda_memoryStats(self.torch.cuda.current_device())

    def describe(self, kind, tensors=True, **facts):
        """Where things lie now. Positions in the history are told by how many allocations came before."""
        try:
            if not self.torch.cuda.is_initialized():  # asking would start it: a program on the CPU is to be told as one
                return self.notes.add(kind, **facts)
            stats = self.counters()
            facts["allocations"] = stats["allocation"]["all"]["allocated"]
            facts["tensors"] = self.addresses() if tensors else []
            facts["workspaces"] = self.workspaces()
        except Exception as error:
            facts["problem"] = repr(error)
        self.notes.add(kind, **facts)

    def addresses(self):
        found = []
        for root in list(self.paths.roots):
            for name, tensor in root.named_parameters():
                put(found, "weights", name, tensor)
                put(found, "gradients", name, tensor.grad)
            for name, tensor in root.named_buffers():
                put(found, "buffers", name, tensor)
        for optimizer in list(self.optimizers):
            put_optimizer(found, optimizer)
        return found

    def workspaces(self):
        room = 256
        addresses = (ctypes.c_uint64 * room)()
        count = self.library.plimsoll_ghost_workspaces(addresses, ctypes.c_size_t(room))
        return list(addresses[: min(count, room)])

    def finish(self, why):
        if os.getpid() != self.notes.pid:
            return
        with self.ending:
            if self.finished:
                return
            self.finished = True
            try:
                if self.torch.cuda.is_initialized():
                    self.describe("end")
                    self.write_history(why)
            except Exception:
                self.notes.add("problem", text=traceback.format_exc())

    def write_history(self, why):
        stats = self.counters()
        snapshot = self.torch.cuda.memory._snapshot()
        with open(os.path.join(OUT, f"{self.notes.pid}.pickle"), "wb") as file:
            pickle.dump(snapshot, file, protocol=4)
        cut = any(len(trace) >= MOST_EVENTS for trace in snapshot["device_traces"])
        guessed = self.guessed() + sorted(self.guessed_sizes)
        self.notes.add("history", why=why, stats=stats, card_peak=self.card_peak(), guessed=guessed, cut=cut)

    def card_peak(self):
        self.library.plimsoll_ghost_peak_bytes.restype = ctypes.c_uint64
        return self.library.plimsoll_ghost_peak_bytes()

    def guessed(self):
        """Functions that answered a size that the stand-in does not know, and those it does not have at all."""
        self.library.plimsoll_ghost_guessed.restype = ctypes.c_char_p
        names = []
        while True:
            name = self.library.plimsoll_ghost_guessed(ctypes.c_size_t(len(names)))
            if name is None:
                return names + self.unknown()
            names.append(name.decode())

    def unknown(self):
        with open(os.path.join(os.environ["PLIMSOLL_GHOST_LIBRARIES"], "stubs.txt")) as file:
            names = file.read().split()
        counters = (ctypes.c_uint32 * len(names)).in_dll(self.library, "plimsoll_ghost_calls")
        return [name[1:] for name, calls in zip(names, counters) if calls and name.startswith("?")]


def put(found, kind, name, tensor):
    if tensor is None or not getattr(tensor, "is_cuda", False) or tensor.numel() == 0:
        return
    try:
        found.append([kind, name, tensor.untyped_storage().data_ptr()])
    except Exception:
        pass  # sparse tensors and subclasses without storage


def put_optimizer(found, optimizer):
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            put(found, "weights", "", parameter)
            put(found, "gradients", "", parameter.grad)
    for state in optimizer.state.values():
        for name, tensor in state.items() if isinstance(state, dict) else ():
            put(found, "optimizer", str(name), tensor)


def stack_of_program():
    """Where the program is: on this thread, or on the main one for what happens on the threads of the backward pass.
    Our own frame is not looked at: whoever holds it holds itself, and with it the tensors of all its callers."""
    frame = sys._getframe(1).f_back or sys._current_frames().get(threading.main_thread().ident)
    try:
        lines = traceback.extract_stack(frame) if frame else []
        return [[line.filename, line.lineno, line.name] for line in lines]
    finally:
        del frame


def cause_of(error, out):
    """What a program died of: an error of memory that it wrapped into another, if it has not gone on since."""
    found = error
    seen = set()
    while out and found is not None and id(found) not in seen:
        if type(found).__name__ == "OutOfMemoryError":
            return found
        seen.add(id(found))
        found = found.__cause__ or found.__context__
    return error


class Answers:
    """What the program sees when it looks at results. Copies from the card give zeros; on top of that:

    - a number that the program itself asks for (`.item()`, `float()`, `int()`) is 1, so that it can be divided by;
      PyTorch's own code gets 0, which is what its loss scaler takes for "no overflow";
    - `isfinite` holds, `isnan` and `isinf` do not;
    - `nonzero`, boolean indexing and `masked_select` find everything, and `unique`, `unique_consecutive` and `coalesce`
      nothing twice: the largest they could be;
    - `bincount` counts `minlength` things, and `repeat_interleave` repeats each once, where they do not know better: the
      report is a lower bound then;
    - lengths, masks and counts that came from the host are still known there: see `Known`;
    - `torch.distributions` does not look whether its parameters are valid.
    """

    def __init__(self, torch, guessed_sizes):
        self.torch = torch
        self.guessed_sizes = guessed_sizes
        self.known = Known(torch)
        self.inside = os.path.dirname(torch.__file__) + os.sep
        self.true = weakref.WeakValueDictionary()
        self.originals = []

    def start(self):
        tensor = self.torch.Tensor
        for name in ("item", "__float__", "__int__", "__index__"):
            self.replace(tensor, name, self.number)
        self.replace(tensor, "__bool__", self.truth)
        for owner in (tensor, self.torch):
            self.replace(owner, "isfinite", self.finite)
            self.replace(owner, "all", self.follow)
            self.replace(owner, "any", self.follow)
        self.known.start(self.replace)
        self.torch.distributions.Distribution.set_default_validate_args(False)
        self.find_everything()

    def replace(self, owner, name, wrap):
        """Functions of torch stay what they are to TorchScript, which knows them by identity."""
        original = getattr(owner, name, None)
        if original is None:
            return
        self.originals.append((owner, name, original))
        replaced = wrap(original)
        setattr(owner, name, replaced)
        builtins = self.torch.jit._builtins
        operation = builtins._find_builtin(original) if owner is self.torch else None
        if operation:
            builtins._register_builtin(replaced, operation)

    def stop(self):
        for owner, name, original in reversed(self.originals):
            setattr(owner, name, original)

    def from_outside(self):
        return not sys._getframe(2).f_code.co_filename.startswith(self.inside)

    def number(self, original):
        def answer(tensor, *args):
            value = original(tensor, *args)
            if not tensor.is_cuda:
                return value
            kept = self.known.of(tensor)
            if kept is not None:
                return type(value)(kept.item())
            if not self.from_outside():
                return value
            if id(tensor) in self.true or type(value) is bool:
                return type(value)(id(tensor) in self.true)
            return type(value)(1)

        return answer

    def truth(self, original):
        def answer(tensor):
            kept = self.known.of(tensor)
            return bool(kept) if kept is not None else id(tensor) in self.true or original(tensor)

        return answer

    def finite(self, original):
        def answer(tensor, *args, **kwargs):
            return self.remember(original(tensor, *args, **kwargs))

        return answer

    def follow(self, original):
        def answer(tensor, *args, **kwargs):
            found = original(tensor, *args, **kwargs)
            return self.remember(found) if id(tensor) in self.true else found

        return answer

    def remember(self, found):
        if getattr(found, "is_cuda", False):
            self.true[id(found)] = found
        return found

    def find_everything(self):
        torch = self.torch
        self.overrides = torch.library.Library("aten", "IMPL")

        def nonzero(tensor):
            places = torch.empty((max(tensor.dim(), 1), tensor.numel()), dtype=torch.int64, device=tensor.device)
            return places.t() if tensor.dim() else places.t()[:, :0]

        sizes = Sizes(torch, self.known, self.guessed_sizes)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that a kernel is replaced
            self.overrides.impl("nonzero", nonzero, "CUDA")
            self.overrides.impl("_unique2", sizes.unique, "CUDA")
            self.overrides.impl("unique_dim", sizes.unique_dim, "CUDA")
            self.overrides.impl("unique_consecutive", sizes.unique_consecutive, "CUDA")
            self.overrides.impl("unique_dim_consecutive", sizes.unique_dim_consecutive, "CUDA")
            self.overrides.impl("bincount", sizes.bincount, "CUDA")
            self.overrides.impl("repeat_interleave.Tensor", sizes.repeat_interleave, "CUDA")
            self.overrides.impl("_coalesce", sizes.coalesce, "SparseCUDA")


class Sizes:
    """Functions of PyTorch whose results are as large as values say."""

    def __init__(self, torch, known, guessed):
        self.torch = torch
        self.known = known
        self.guessed = guessed

    def places(self, like, *shape):
        return self.torch.empty(shape, dtype=self.torch.int64, device=like.device)

    def unique(self, tensor, sorted=True, return_inverse=False, return_counts=False):
        """With the sorted copy, and where each came from, that PyTorch holds meanwhile."""
        count = tensor.numel()
        in_order = tensor.new_empty(count)
        came_from = self.places(tensor, count) if return_inverse else None
        inverse = self.places(tensor, *tensor.shape) if return_inverse else self.places(tensor, 0)
        counts = self.places(tensor, count if return_counts else 0)
        found = tensor.new_empty(count)
        del in_order, came_from
        return found, inverse, counts

    def unique_dim(self, tensor, dim, sorted=True, return_inverse=False, return_counts=False):
        return self.unique_dim_consecutive(tensor, dim, return_inverse, return_counts)

    def unique_consecutive(self, tensor, return_inverse=False, return_counts=False, dim=None):
        if dim is not None:
            return self.unique_dim_consecutive(tensor, dim, return_inverse, return_counts)
        inverse = self.places(tensor, *tensor.shape) if return_inverse else self.places(tensor, 0)
        return tensor.new_empty(tensor.numel()), inverse, self.places(tensor, tensor.numel() if return_counts else 0)

    def unique_dim_consecutive(self, tensor, dim, return_inverse=False, return_counts=False):
        count = tensor.shape[dim]
        inverse, counts = self.places(tensor, count), self.places(tensor, count if return_counts else 0)
        return self.torch.empty_like(tensor, memory_format=self.torch.contiguous_format), inverse, counts

    def bincount(self, tensor, weights=None, minlength=0):
        values = self.known.of(tensor)
        if values is None and minlength == 0:
            self.guessed.add("bincount")
        largest = int(self.known.largest(values)) + 1 if values is not None and values.numel() else 0
        count = max(int(minlength), largest, 1 if tensor.numel() else 0)
        if weights is None:
            return self.places(tensor, count)
        kind = weights.dtype if weights.dtype == self.torch.float32 else self.torch.float64
        return self.torch.empty(count, dtype=kind, device=tensor.device)

    def repeat_interleave(self, repeats, output_size=None):
        values = self.known.of(repeats)
        if output_size is None and values is not None:
            output_size = sum(values.flatten().tolist())
        if output_size is None:
            self.guessed.add("repeat_interleave")
            output_size = repeats.numel()
        return self.places(repeats, int(output_size))

    def coalesce(self, tensor):
        torch = self.torch
        most = 1
        for size in tensor.shape[: tensor.sparse_dim()]:
            most *= size
        count = min(tensor._nnz(), most)
        indices, values = tensor._indices()[:, :count].clone(), tensor._values()[:count].clone()
        return torch.sparse_coo_tensor(indices, values, tensor.shape, is_coalesced=True, check_invariants=False)


class Known:
    """Values of small integer and boolean tensors that the host gave the card: lengths, masks, counts. A copy of each stays on
    the host and goes through the same functions, as far as they are listed here, so that a program that reads a largest
    length back sees the true one. What a function that is not listed makes of them is not known, nor is a tensor that one
    has changed in place. Beside what is known, a condition that is not does not hold."""

    MOST = 1 << 16
    MAKERS = ("tensor", "as_tensor", "full", "ones", "zeros", "arange", "ones_like", "zeros_like", "full_like")
    MOVERS = ("to", "cuda", "cpu")
    METHODS = ("long", "int", "bool", "float", "tolist", "expand", "view", "__getitem__", "__invert__", "__neg__", "__add__",
               "__radd__", "__sub__", "__rsub__", "__mul__", "__rmul__", "__floordiv__", "__truediv__", "__mod__", "__and__",
               "__or__", "__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__")
    FUNCTIONS = ("max", "min", "amax", "amin", "sum", "cumsum", "all", "any", "add", "sub", "mul", "div", "floor_divide",
                 "remainder", "clamp", "eq", "ne", "lt", "le", "gt", "ge", "logical_not", "logical_and", "logical_or", "diff",
                 "reshape", "unsqueeze", "squeeze", "flatten", "argmax", "argmin", "sort")

    def __init__(self, torch):
        self.torch = torch
        # By identity: the tensor, how often it had been changed, and its values.
        self.kept = {}

    def start(self, replace):
        tensor = self.torch.Tensor
        self.tolist = tensor.tolist
        self.largest = tensor.max
        # `with torch.device(…)` lists the makers when it is first used, and must list the true ones.
        importlib.import_module("torch.utils._device")._device_constructors()
        for name in self.MAKERS:
            replace(self.torch, name, self.maker)
        for name in self.MOVERS:
            replace(tensor, name, self.mover)
        for name in self.METHODS + self.FUNCTIONS:
            replace(tensor, name, self.follower)
        for name in self.FUNCTIONS:
            replace(self.torch, name, self.follower)
        replace(tensor, "__setitem__", self.setter)

    def of(self, tensor):
        found = self.kept.get(id(tensor))
        if found is None or found[0]() is not tensor or found[1] != self.changes(tensor):
            return None
        return found[2]

    def changes(self, tensor):
        """How often it was changed in place; inference mode does not count."""
        return 0 if tensor.is_inference() else tensor._version

    def keep(self, tensor, values):
        if tensor.shape != values.shape:
            return
        name = id(tensor)
        gone = weakref.ref(tensor, lambda _: self.kept.pop(name, None))
        self.kept[name] = (gone, self.changes(tensor), values)

    def worth(self, tensor):
        if not isinstance(tensor, self.torch.Tensor) or not tensor.is_cuda or tensor.numel() > self.MOST:
            return False
        return not (tensor.is_floating_point() or tensor.is_complex())

    def on_host(self, function, *args, **kwargs):
        """The same of the values, if they allow it."""
        try:
            with self.torch.no_grad():
                return function(*args, **kwargs)
        except Exception:
            return None

    def maker(self, original):
        shape_counts = original.__name__.endswith("_like")

        def answer(*args, **kwargs):
            found = original(*args, **kwargs)
            if kwargs.get("out") is not None or not self.worth(found):
                return found
            args = self.values(args)
            if shape_counts or not self.on_card((*args, *kwargs.values())):
                values = self.on_host(original, *args, **dict(kwargs, device="cpu"))
                if values is not None:
                    self.keep(found, values)
            return found

        return answer

    def values(self, things):
        """With values in place of tensors, where those are known."""
        kept = (self.of(thing) if isinstance(thing, self.torch.Tensor) else None for thing in things)
        return [thing if values is None else values for thing, values in zip(things, kept)]

    def mover(self, original):
        def answer(tensor, *args, **kwargs):
            found = original(tensor, *args, **kwargs)
            if found is tensor or found.is_cuda == tensor.is_cuda:
                return found
            if not found.is_cuda:
                values = self.of(tensor)
                if values is not None:
                    found.copy_(values)
            elif self.worth(found):
                self.keep(found, tensor.detach().to(found.dtype, copy=True))
            return found

        return answer

    def follower(self, original):
        def answer(tensor, *args, **kwargs):
            if not self.kept or id(tensor) not in self.kept and not (args and id(args[0]) in self.kept):
                return original(tensor, *args, **kwargs)
            if original is self.tolist and self.of(tensor) is not None:
                return self.of(tensor).tolist()
            found = original(tensor, *args, **kwargs)
            self.follow(original, found, (tensor, *args), kwargs)
            return found

        return answer

    def follow(self, original, found, args, kwargs):
        args = [self.condition(value) for value in self.values(args)]
        kwargs = dict(zip(kwargs, self.values(list(kwargs.values()))))
        if self.on_card((*args, *kwargs.values())):
            return
        values = self.on_host(original, *args, **kwargs)
        pairs = zip(found, values) if isinstance(values, tuple) else [(found, values)]
        for tensor, value in pairs:
            if isinstance(value, self.torch.Tensor) and isinstance(tensor, self.torch.Tensor) and tensor.is_cuda:
                self.keep(tensor, value)

    def condition(self, thing):
        """One that nobody computed does not hold, as everywhere: so a loop ends at its largest length."""
        unknown = isinstance(thing, self.torch.Tensor) and thing.dtype is self.torch.bool and self.worth(thing)
        return self.torch.zeros(thing.shape, dtype=thing.dtype, device="cpu") if unknown else thing

    def on_card(self, thing):
        if isinstance(thing, (tuple, list)):
            return any(self.on_card(inner) for inner in thing)
        return isinstance(thing, self.torch.Tensor) and thing.is_cuda

    def setter(self, original):
        def answer(tensor, place, value):
            values = self.of(tensor) if id(tensor) in self.kept else None
            original(tensor, place, value)
            if values is None:
                return
            place, value = self.values((place, value))
            if self.on_card(place) or self.on_card(value):
                return
            # A copy: views of it may be others' values.
            values = values.clone()
            self.on_host(original, values, place, value)
            self.keep(tensor, values)

        return answer


class World:
    """Rank 0 of a world whose other ranks are not there: they agree at once.

    The store that ranks meet at is this process's own; collectives on the card go to the stand-in's NCCL, those on the
    host to PyTorch's own fake. What ranks would have to tell each other about themselves (that their models are alike, in
    which order gradients became ready) is not asked: it would be read back from a card that holds nothing.
    """

    SETTINGS = ("timeout", "device_id", "group_name", "pg_options")

    def __init__(self, torch):
        self.distributed = torch.distributed
        self.torch = torch

    def start(self):
        if not self.distributed.is_available():
            return
        core = self.distributed.distributed_c10d
        original = core.init_process_group

        def init_process_group(backend=None, *_, **settings):
            importlib.import_module("torch.testing._internal.distributed.fake_pg")
            kept = {key: value for key, value in settings.items() if key in self.SETTINGS}
            store = self.distributed.HashStore()
            return original("cpu:fake,cuda:nccl", store=store, rank=0, world_size=WORLD, **kept)

        core.init_process_group = self.distributed.init_process_group = init_process_group
        self.distributed._verify_params_across_processes = lambda *_, **__: None
        self.torch._C._distributed_c10d.Reducer._rebuild_buckets = lambda _: False


def install(torch):
    ghost = Ghost(torch)
    if torch.version.cuda is None:
        ghost.notes.add("cpu_only", version=torch.__version__)
        return
    ghost.notes.add("torch", version=torch.__version__, cuda=torch.version.cuda)
    ghost.paths.start()
    Steps(ghost).start()
    answers = Answers(torch, ghost.guessed_sizes)
    answers.start()
    if WORLD > 1:
        World(torch).start()
    torch.cuda._lazy_call(ghost.start_recording)
    watch_compile(torch, ghost, answers)
    watch_the_end(ghost)


def watch_compile(torch, ghost, answers):
    """A program is not to be compiled with us in it: from then on modules are not named, and numbers are zeros."""
    original = torch.compile

    def compile(*args, **kwargs):
        ghost.notes.add("compiled")
        ghost.paths.stop()
        answers.stop()
        return original(*args, **kwargs)

    torch.compile = compile


def watch_the_end(ghost):
    shown = sys.excepthook

    def excepthook(kind, error, trace):
        cause = cause_of(error, ghost.out)
        lines = traceback.extract_tb(trace if cause is error else cause.__traceback__)
        place = [[line.filename, line.lineno, line.name] for line in lines]
        ghost.notes.add("error", type=type(cause).__name__, text=str(cause), stack=place)
        ghost.finish("error")
        shown(kind, error, trace)

    sys.excepthook = excepthook

    def stop(*_):
        # Whoever asked waits as long as it takes, now that it is heard.
        open(os.path.join(OUT, f"{os.getpid()}.ending"), "w").close()
        ghost.finish("time")
        leave(124)

    os.register_at_fork(after_in_child=ghost.begin_again)
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGUSR2, stop)
