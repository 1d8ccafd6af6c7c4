"""A simulated accelerator: what runs on it without being refused mixes no devices, and would run on a real one.

Inside of ``Accelerator()``, tensors on ``DEVICE`` hold their numbers and compute, unlike torch's own there. As on CUDA,
they are not to be mixed with tensors of the processor, but for single numbers and indices, nor read by NumPy.
"""

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

DEVICE = "meta"
COPIES = {torch.ops.aten.copy_.default, torch.ops.aten._to_copy.default}
INDEXED = {
    torch.ops.aten.index.Tensor,
    torch.ops.aten.index_put_.default,
    torch.ops.aten._index_put_impl_.default,
}


class Remote(torch.Tensor):
    """A tensor on the accelerator; ``held`` has its numbers."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, held):
        layout = {"strides": held.stride(), "storage_offset": held.storage_offset(), "dtype": held.dtype}
        return torch.Tensor._make_wrapper_subclass(cls, held.shape, **layout, device=DEVICE)

    def __init__(self, held):
        self.held = held

    @classmethod
    def __torch_dispatch__(cls, operation, types, args=(), kwargs=None):
        return compute(operation, args, kwargs or {})

    # What torch would make on its own device without asking.
    def __getitem__(self, index):
        return super().__getitem__(as_index(index))

    def __setitem__(self, index, value):
        super().__setitem__(as_index(index), value)

    def new_tensor(self, numbers):
        return torch.tensor(numbers, dtype=self.dtype).to(DEVICE)

    def tolist(self):
        return self.held.tolist()

    def numpy(self, *, force=False):
        if not force:
            raise TypeError("NumPy cannot read a tensor on the accelerator")
        return self.held.numpy(force=True)


class Accelerator(TorchDispatchMode):
    """Computes every operation of torch, and refuses those that mix devices."""

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        return compute(operation, args, kwargs or {})


def as_index(index):
    if isinstance(index, tuple):
        return tuple(map(as_index, index))
    return torch.tensor(index) if isinstance(index, list) else index


def compute(operation, args, kwargs):
    tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    held = {id(tensor.held): tensor for tensor in tensors if isinstance(tensor, Remote)}
    local = {id(tensor): tensor for tensor in tensors if not isinstance(tensor, Remote)}
    if any(tensor.device.type == DEVICE for tensor in local.values()):
        raise RuntimeError(f"{operation}: a tensor was made on the accelerator beside the simulation")
    check_devices(operation, args, held, local)
    remote = bool(held)
    if kwargs.get("device") is not None:
        remote = torch.device(kwargs["device"]).type == DEVICE
        kwargs = {**kwargs, "device": "cpu"}
    here = tree_map(lambda leaf: leaf.held if isinstance(leaf, Remote) else leaf, (args, kwargs))
    result = operation(*here[0], **here[1])

    def placed(leaf):
        if not isinstance(leaf, torch.Tensor) or id(leaf) in local:
            return leaf
        return held.get(id(leaf), Remote(leaf) if remote else leaf)

    return tree_map(placed, result)


def check_devices(operation, args, held, local):
    if not held or operation in COPIES:
        return
    allowed = {id(index) for index in args[1]} if operation in INDEXED else set()
    mixed = [tuple(t.shape) for key, t in local.items() if t.ndim > 0 and key not in allowed]
    if mixed:
        raise RuntimeError(f"{operation}: tensors of the processor, of shapes {mixed}, on the accelerator")
