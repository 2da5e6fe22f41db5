"""What the judge needs of a backend besides the mathematics: conversion and gradients (spec backend.md).

The reference differentiates by complex steps: every function of this package is analytic in its float arguments
wherever the spec defines a gradient, so f(x + i·h) = f(x) + i·h·f′(x) to rounding for a tiny h; no difference is taken.
"""

from collections.abc import Callable

import numpy as np

NAME = "reference"
DTYPES = ("float64",)
NOT_OFFERED = ("compiled", "vmapped")
TANGENT = 1e-100  # so small that h² vanishes, so large that h·f′ does not


def from_numpy(array, dtype: str) -> np.ndarray:
    """A NumPy array of the dtype."""
    return np.array(array, dtype)


def to_numpy(x) -> np.ndarray:
    """The values alone: tangents are dropped."""
    return np.real(np.asarray(x))


def value_and_grad(fn: Callable, *arrays, constants: tuple = ()) -> tuple[np.ndarray, tuple[np.ndarray, ...]]:
    """The scalar fn(*arrays, *constants) and its gradient with respect to each array, in its dtype.

    One complex step an entry.
    """
    grads = []
    for k, array in enumerate(arrays):
        grad = np.zeros(array.shape)
        for index in np.ndindex(array.shape):
            moved = array.astype(np.complex128)
            moved[index] += 1j * TANGENT
            grad[index] = np.imag(fn(*arrays[:k], moved, *arrays[k + 1 :], *constants)) / TANGENT
        grads.append(grad.astype(array.dtype))
    return np.real(fn(*arrays, *constants)), tuple(grads)
