"""What the judge needs besides the mathematics, and the dtype rule (spec B3, B8 and backend.md)."""

from collections.abc import Callable
from functools import reduce

import numpy as np
import torch

from ponder_ref import checks

NAME = "torch"
DTYPES = ("float64", "float32", "bfloat16", "float16")
_HOLDERS = {"uint32": torch.int64}  # 32-bit words live in int64, where torch has every operation


def from_numpy(array, dtype: str) -> torch.Tensor:
    """A tensor of the dtype with the values of a NumPy array."""
    return torch.from_numpy(np.array(array)).to(_HOLDERS.get(dtype) or getattr(torch, dtype))


def to_numpy(x: torch.Tensor) -> np.ndarray:
    """A NumPy array with the tensor's values and dtype; bfloat16, which NumPy lacks, becomes float32."""
    x = x.detach().cpu()
    return (x.float() if x.dtype == torch.bfloat16 else x).numpy()


def value_and_grad(fn: Callable, *arrays: torch.Tensor, constants: tuple = ()):
    """The scalar fn(*arrays, *constants) and its gradient with respect to each array."""
    grads, value = torch.func.grad_and_value(fn, argnums=tuple(range(len(arrays))))(*arrays, *constants)
    return value, grads


def compiled(fn: Callable, *, optimize: bool = False) -> Callable:
    """fn as one graph without breaks; traced and differentiated ahead of time, or optimised by inductor as well."""
    torch.compiler.reset()  # a closure compiled for other arguments counts against dynamo's limit of recompilations
    return torch.compile(fn, fullgraph=True, dynamic=False, backend="inductor" if optimize else "aot_eager")


def vmapped(fn: Callable, in_axes: tuple) -> Callable:
    """fn mapped over one more axis of its arguments."""
    return torch.func.vmap(fn, in_dims=tuple(in_axes))


def check_tensors(*arrays: torch.Tensor) -> None:
    for x in arrays:
        if not isinstance(x, torch.Tensor):
            raise ValueError(f"arrays must be torch tensors, got a {type(x).__name__}: torch.as_tensor makes one of it")


def as_float(*arrays: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The arrays in the widest of their dtypes, float32 at least: half precision is computed in float32."""
    check_tensors(*arrays)
    dtype = reduce(torch.promote_types, (x.dtype for x in arrays), torch.float32)
    return tuple(x.to(dtype) for x in arrays)


def step_numbers(x: torch.Tensor) -> torch.Tensor:
    """n = 1..N along the first axis of x, `[N, 1, ...]`."""
    return torch.arange(1, x.shape[0] + 1, device=x.device).reshape(-1, *[1] * (x.ndim - 1))


def length_array(lengths: torch.Tensor | None, x: torch.Tensor) -> torch.Tensor | int:
    """Nᵢ for each example, or N."""
    checks.check_lengths(lengths, tuple(x.shape[1:]))
    return x.shape[0] if lengths is None else lengths.to(torch.int64)  # torch compares few unsigned dtypes


def expand_right(x: torch.Tensor, ndim: int) -> torch.Tensor:
    """x with axes of length 1 added behind, up to ndim."""
    return x.reshape((*x.shape, *[1] * (ndim - x.ndim)))
