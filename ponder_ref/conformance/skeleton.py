"""Writes the skeleton of a new backend: every function with its signature, its line of prose and its spec ids."""

import inspect
from pathlib import Path

import ponder_ref
from ponder_ref.conformance import interface
from ponder_ref.conformance.endings import write_whole
from ponder_ref.runtime.errors import Refused

HEAD = '''"""A PonderNet backend. Judge it with

    python -m ponder_ref.conformance --backend {module}.py

Fill in a function, take its name out of NOT_OFFERED, run the judge again. The seven that must be offered are
{required}.
Arrays have the step axis first: [N, ...batch]. Arrays of the backend must know `*`, `+` and `.sum()`.
"""

import numpy as np

from ponder_ref.base import ActHalting, PonderLoss# noqa: F401

NAME = "{module}"
DTYPES = ("float64",)  # of "float64", "float32", "bfloat16", "float16"

# What is not offered (yet): functions, or requirement ids of the spec. The judge says so; they do not fail.
NOT_OFFERED = (
{not_offered}
)


def from_numpy(array, dtype):
    """An array of this backend; dtype is one of DTYPES, "int32", "bool", or "uint32" for 32-bit words."""
    return np.array(array, dtype)  # replace by your framework's


def to_numpy(x):
    """A NumPy array of the same dtype."""
    return np.asarray(x)  # replace by your framework's


# value_and_grad(fn, *arrays, constants=()) -> (value, gradients), compiled(fn, *, optimize=False) -> fn,
# vmapped(fn, in_axes) -> fn: offer them if your framework has them; gradients are where most implementations go wrong.
'''


def skeleton(module: str) -> str:
    """The text of a new backend module."""
    optional = [name for name in interface.OPTIONAL if name not in (*interface.REQUIRED, *interface.ANNEX)]
    not_offered = "\n".join(f'    "{name}",' for name in optional)
    text = HEAD.format(module=module, required=", ".join(interface.REQUIRED), not_offered=not_offered)
    for name, ids in interface.FUNCTIONS.items():
        function = getattr(ponder_ref, name)
        parameters = [
            p.replace(annotation=inspect.Parameter.empty) for p in inspect.signature(function).parameters.values()
        ]
        summary = (inspect.getdoc(function) or "").splitlines()[0].rstrip(".")
        text += f'\n\ndef {name}{inspect.Signature(parameters)}:\n    """{summary} (spec {", ".join(ids)})."""\n'
        text += "    raise NotImplementedError\n"
    return text


def write_skeleton(path: Path) -> None:
    """Writes the skeleton; never over an existing file."""
    if path.suffix != ".py" or not path.stem.isidentifier():
        raise Refused(f"--new needs the name of a Python module such as my_backend.py, got {path}")
    write_whole(path, skeleton(path.stem), "--new", new=True)
