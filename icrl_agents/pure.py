"""Functions of states that a user gives, such as kernels: kept as they are now, asked, and whether the call matters."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable
from functools import partial
from types import FunctionType, MethodType, ModuleType
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized

from icrl_agents.notices import warn

_Any = TypeVar("_Any")
_Module = TypeVar("_Module", bound=nn.Module)

PAIRS = 4
"""Of neighbouring states that such a function is tried on: along a trajectory those are near each other."""

_DIFFERENT, _ROUNDING = 1e-2, 1e-5
"""Differences between what is given for the same states, to these and to the largest of them, above rounding."""
_REPEATED = 1e-8
"""The latter where a processor is asked the same again, which rounds alike."""


def held(module: _Any) -> _Any:
    """Returns a copy of ``module``, and of all in it, as ``holding``; a compiled script and a function as they are.

    Of any other object it is a copy of that and of what it keeps itself.

    Raises:
        ValueError: If a weight is not initialised yet.
    """
    if isinstance(module, (nn.Module, FunctionType, MethodType, partial)) or not hasattr(module, "__dict__"):
        return _held(module, {})
    copied = copy.copy(module)
    vars(copied).update({name: _held(each, {}) for name, each in vars(module).items()})
    return copied


def _held(item: Any, known: dict[int, Any]) -> Any:  # noqa: ANN401 - whatever a module keeps
    """A copy of a tensor, an array or a module, and of those in containers and bound methods; all else as it is."""
    if isinstance(item, torch.jit.ScriptModule):
        return item
    if isinstance(item, nn.Module):
        item = item._modules.get("_orig_mod", item)  # of torch.compile, whose copy would be compiled anew
    if id(item) in known:
        return known[id(item)]
    if isinstance(item, nn.Module):
        known[id(item)] = copied = object.__new__(type(item))
        for name, each in vars(item).items():  # what hooks record is for the caller, who keeps it
            copied.__dict__[name] = copy.copy(each) if "_hooks" in name else _held(each, known)
    elif isinstance(item, (nn.UninitializedParameter, nn.UninitializedBuffer)):
        raise ValueError("a weight of a module is not initialised yet, as of LazyLinear; ask it about a state first.")
    elif isinstance(item, (Tensor, np.ndarray)):
        known[id(item)] = item.clone() if isinstance(item, Tensor) else item.copy()
    else:
        return _held_in(item, known)
    return known[id(item)]


def _held_in(item: Any, known: dict[int, Any]) -> Any:  # noqa: ANN401
    """A container or a bound method, with what it keeps held; all else as it is."""
    if isinstance(item, (list, deque, dict)):
        known[id(item)] = copied = copy.copy(item)
        for key, each in list(item.items() if isinstance(item, dict) else enumerate(item)):
            copied[key] = _held(each, known)
        return copied
    if isinstance(item, tuple):
        kept = tuple(_held(each, known) for each in item)
        same = all(each is own for each, own in zip(kept, item, strict=True))  # as of a torch.Size
        return item if same else getattr(type(item), "_make", type(item))(kept)
    if isinstance(item, partial):
        return partial(*_held((item.func, *item.args), known), **_held(item.keywords, known))
    if isinstance(item, MethodType):
        return MethodType(item.__func__, _held(item.__self__, known))
    return item


def deep_copied(item: _Any, known: dict[int, Any]) -> _Any:
    """What ``copy.deepcopy`` makes of an object, and of results of torch in it, which that refuses to copy.

    Those are cloned: the gradients of the copy go to where those of the object go. ``known`` is the memo.
    """
    left: list[Any] = [vars(item)]
    seen: dict[int, Any] = {}
    while left:
        each = left.pop()
        if id(each) in seen:
            continue
        seen[id(each)] = each
        if isinstance(each, Tensor) and not each.is_leaf:
            known.setdefault(id(each), each.clone())
        elif isinstance(each, (dict, list, deque, tuple)):
            left.extend(each.values() if isinstance(each, dict) else each)
        elif isinstance(each, partial):
            left.extend([each.func, *each.args, *each.keywords.values()])
        elif isinstance(each, MethodType):
            left.append(each.__self__)
        elif not isinstance(each, (type, Tensor, ModuleType, FunctionType)):
            left.extend(getattr(each, "__dict__", {}).values())
    known[id(item)] = copied = object.__new__(type(item))
    vars(copied).update(copy.deepcopy(vars(item), known))
    return copied


def check_held(name: str, module: nn.Module, *states: Tensor) -> None:
    """Warns where a copy of ``module`` has weights that are not its own: values would move where those are trained."""
    with torch.no_grad():
        own = held(module)  # without gradients
    with torch.enable_grad():
        others = asked(name, own, *states).requires_grad
    if others:
        warn(
            f"{name}: has weights in a function or in an object that is no nn.Module, or a compiled script; values "
            "that were inferred change where those are trained. Keep them in the module itself, and read them by self.",
            UserWarning,
            stacklevel=2,
        )


def check_hooks(name: str, module: object) -> None:
    """Raises ValueError where hooks of ``torch.nn.utils`` make weights of ``module`` anew before each call of it."""
    hooks = getattr(module, "_forward_pre_hooks", {}).values()
    if any(type(hook).__module__.startswith("torch.nn.utils.") for hook in hooks):
        raise ValueError(
            f"{name}: has weights that a hook makes before each call, as of torch.nn.utils.prune or weight_norm, and "
            "is asked by its other methods too, where they would stay as they were. Take torch.nn.utils.parametrize or "
            "parametrizations.weight_norm, or prune.remove it first."
        )


def is_patched(module: Any) -> bool:  # noqa: ANN401
    """Whether hooks run before or after a module's forward pass, or a function stands in its place."""
    hooks = (getattr(module, name, None) for name in ("_forward_hooks", "_forward_pre_hooks"))
    replaced = "forward" in vars(module) and not hasattr(module, "_orig_mod")  # which torch.compile has put there
    return replaced or any(hooks) or bool(nn.modules.module._has_any_global_hook())


def holding(module: _Module, **weights: Tensor) -> _Module:
    """Returns a copy of ``module`` that keeps these weights as they are now, and passes gradients on to them."""
    copied = object.__new__(type(module))  # copy.copy is refused by modules with parametrisations
    vars(copied).update(vars(module))
    copied._parameters = {name: weight for name, weight in module._parameters.items() if name not in weights}
    for name, weight in weights.items():
        if not is_parametrized(module, name):  # of which ``held`` keeps what it is computed from
            setattr(copied, name, weight.clone())
    return copied


def asked(name: str, function: Callable[..., Tensor], *states: Tensor) -> Tensor:
    """What a function that a user gives makes of ``states``.

    To errors of its own, of shapes as a rule, a line is added with those of the states.

    Raises:
        TypeError: If its weights are of another floating type.
    """
    try:
        return function(*states)
    except (RuntimeError, TypeError, LookupError) as error:
        typed = isinstance(error, RuntimeError) and "type" in str(error)
        if not typed or not _takes_another_type(function, states):
            shapes = " and ".join(str(tuple(each.shape)) for each in states)
            error.add_note(f"{name}: fails on states of shape {shapes}; expected to take any number m, (*batch, m, d).")
            raise
        raise TypeError(
            f"{name}: does not take states of {states[0].dtype} ({error}); convert it, for instance with .double(), or "
            "the context with .to(dtype=torch.float32), or its weights where used, with .to(x)."
        ) from error


@torch.no_grad()
def _takes_another_type(function: Callable[..., Tensor], states: tuple[Tensor, ...]) -> bool:
    other = torch.float32 if states[0].dtype == torch.float64 else torch.float64
    try:
        function(*(each.to(other) for each in states))
    except RuntimeError:
        return False
    return True


def some_rows(states: Tensor) -> tuple[Tensor, Tensor]:
    """A few of ``states (*batch, n, d)``, a copy, and the first half of those."""
    n = states.shape[-2]
    first = torch.arange(PAIRS, device=states.device) * (n - 2) // (PAIRS - 1)  # in whole numbers, which are exact
    rows = torch.stack([first, first + 1], dim=-1).flatten() if n > 2 * PAIRS else torch.arange(n, device=states.device)
    some = states[..., rows, :]
    return some, some[..., : (some.shape[-2] + 1) // 2, :]


def depends_on_call(alone: Tensor, again: Tensor, among: Tensor) -> bool:
    """Whether states were given other numbers when asked for ``again``, or ``among`` others, than ``alone``."""
    largest = float(alone.nan_to_num(posinf=0.0, neginf=0.0).abs().max())  # padding may have any
    rounding = largest * (_REPEATED if alone.device.type == "cpu" else _ROUNDING)
    repeats = torch.allclose(again, alone, rtol=0.0, atol=rounding, equal_nan=True)
    among_others = torch.allclose(among, alone, rtol=_DIFFERENT, atol=_ROUNDING * largest, equal_nan=True)
    return not (repeats and among_others)
