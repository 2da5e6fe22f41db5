"""Sweep a backend for NaN: ten million seeded examples for each float function, values and gradients.

    python scripts/sweep_nan.py --backend ponder_torch [--rows 10_000_000] [--function log_halting ponder_loss ...]

A row is one example of 8 steps in float32. Inputs are finite: normal numbers of several sizes with ±0, ±17, ±89, ±1e4
and subnormals mixed in, λ in [0, 1] with 0, 1 and subnormals. Functions of log p are fed log_halting of such logits and
differentiated with respect to the logits; every row is swept in both remainder rules. Gradients with respect to λ count
where λ is strictly inside (0, 1) and not subnormal, which is where they are defined. Optimiser updates are not
differentiated. Functions with integer results have no NaN, and priors take no arrays. One line a function; exit code 1
if anything is NaN.
"""

import argparse
import importlib
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

STEPS = 8
CHUNK = 2**17
SEED = 20210712
CORNERS = np.float32([0.0, -0.0, 17.0, -17.0, 89.0, -89.0, 1e4, -1e4, 1e-40, -1e-40, 1e-45, 40.0])
LAMBDA_CORNERS = np.float32([0.0, 1.0, 1e-40, 1e-45, 2.0**-126, 1 - 2.0**-24, 2.0**-24, 0.5])
SMALLEST_NORMAL = np.finfo(np.float32).tiny
REMAINDERS = ("last", "normalize")


class Chunk(NamedTuple):
    """Arrays `[8, rows]` of one chunk, or `[rows]`: what the functions are fed."""

    logits: np.ndarray
    lambdas: np.ndarray
    values: np.ndarray
    weights: np.ndarray
    cotangent: np.ndarray
    ids: np.ndarray


class Sweep(NamedTuple):
    """A function of backend arrays under test: the names of the arrays of a chunk it is given and differentiated by.

    `fn` gives arrays to look at and, if `wrt` is not empty, is differentiated in the sum of all of them.
    """

    fn: Callable[..., tuple]
    given: tuple[str, ...]
    wrt: int = 0  # how many of the arrays given, from the first, are differentiated by


def mixed(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Normal numbers whose size differs between rows, a tenth of them replaced by corners."""
    size = np.float32([0.01, 1.0, 3.0, 10.0, 50.0])[rng.integers(0, 5, shape[1:])]
    made = rng.standard_normal(shape, np.float32) * size
    at = rng.integers(0, made.size, made.size // 10)
    made.reshape(-1)[at] = CORNERS[rng.integers(0, len(CORNERS), len(at))]
    # Rows made of one corner alone: every step saturated in the same direction, or every step exactly 0.
    rows = rng.integers(0, shape[1], shape[1] // 50)
    made[:, rows] = CORNERS[rng.integers(0, len(CORNERS), len(rows))]
    return made


def make_chunk(rng: np.random.Generator, start: int, rows: int) -> Chunk:
    shape = (STEPS, rows)
    lam = rng.random(shape, np.float32) ** rng.integers(1, 4, rows).astype(np.float32)
    at = rng.integers(0, lam.size, lam.size // 10)
    lam.reshape(-1)[at] = LAMBDA_CORNERS[rng.integers(0, len(LAMBDA_CORNERS), len(at))]
    whole = rng.integers(0, rows, rows // 50)
    lam[:, whole] = LAMBDA_CORNERS[rng.integers(0, len(LAMBDA_CORNERS), len(whole))]
    weights = np.float32([0.0, 1.0, 0.5, 3.0])[rng.integers(0, 4, rows)]
    weights[0] = 1.0
    cotangent = rng.standard_normal(shape, np.float32)
    return Chunk(mixed(rng, shape), lam, mixed(rng, shape), weights, cotangent, np.arange(start, start + rows))


def sweeps(backend: Any) -> dict[str, list[Sweep]]:
    """What is run for each function of the interface."""
    b = backend
    prior = b.geometric_log_prior(0.3, STEPS)

    def both(make: Callable[[str], Callable], *given: str, wrt: int) -> list[Sweep]:
        return [Sweep(make(remainder), given, wrt) for remainder in REMAINDERS]

    def act(lam, values):
        made = b.act_halting(lam)
        return (made.weights * values, made.remainder)

    def cost(lam):
        made = b.act_halting(lam)
        return (b.act_cost(made.steps, made.remainder, tau=0.01),)

    def adam(param, grad, m):
        return tuple(b.adam_update(param, grad, m, m * m, step=3, learning_rate=0.1, weight_decay=0.01))

    def orthogonal(matrix):
        return (b.orthogonalize(matrix),)

    def muon(param, grad, m):
        return tuple(b.muon_update(param, grad, m, step=3, learning_rate=0.1, weight_decay=0.01))

    def clip(one, other):
        made = b.clip_by_global_norm({"one": one, "other": other}, max_norm=1.0)
        return (*made.grads.values(), made.norm)

    def loss(r):
        return lambda z, y, w: (b.ponder_loss(b.log_halting(z, remainder=r), y, prior, beta=0.25, weights=w).loss,)

    def parts(r):
        return lambda z, y, w: b.ponder_loss(b.log_halting(z, remainder=r), y, prior, beta=0.25, weights=w)[3:]

    matrices = b.vmapped(orthogonal, (0,)), b.vmapped(muon, (0, 0, 0)), b.vmapped(clip, (0, 0))
    return {
        "log_halting": both(lambda r: lambda z, g: (b.log_halting(z, remainder=r) * g,), "logits", "cotangent", wrt=1),
        "log_halting_from_lambdas": [
            *both(lambda r: lambda lam: (b.log_halting_from_lambdas(lam, remainder=r),), "lambdas", wrt=1),
            *both(
                lambda r: lambda lam: (b.expected_steps(b.log_halting_from_lambdas(lam, remainder=r)),),
                "lambdas",
                wrt=1,
            ),
        ],
        "expected_steps": both(lambda r: lambda z: (b.expected_steps(b.log_halting(z, remainder=r)),), "logits", wrt=1),
        "expected_prediction": both(
            lambda r: lambda z, y: (b.expected_prediction(b.log_halting(z, remainder=r), y[..., None]),),
            "logits",
            "values",
            wrt=2,
        ),
        "expected_loss": both(
            lambda r: lambda z, y: (b.expected_loss(b.log_halting(z, remainder=r), y),), "logits", "values", wrt=2
        ),
        "kl_divergence": both(
            lambda r: lambda z: (b.kl_divergence(b.log_halting(z, remainder=r), prior),), "logits", wrt=1
        ),
        "weighted_mean": [Sweep(lambda y, w: (b.weighted_mean(y[0], w),), ("values", "weights"), 1)],
        "ponder_loss": [
            *both(loss, "logits", "values", "weights", wrt=2),
            *both(parts, "logits", "values", "weights", wrt=2),
        ],
        "halting_uniforms": [Sweep(lambda ids: (b.halting_uniforms(7, ids, max_steps=STEPS),), ("ids",))],
        "act_halting": [Sweep(act, ("lambdas", "cotangent"), 1)],
        "act_cost": [Sweep(cost, ("lambdas",), 1)],
        "act_output": [Sweep(lambda lam, y: (b.act_output(b.act_halting(lam).weights, y),), ("lambdas", "values"), 2)],
        "adam_update": [Sweep(adam, ("logits", "values", "cotangent"))],
        "orthogonalize": [Sweep(matrices[0], ("matrices:values",))],
        "muon_update": [Sweep(matrices[1], ("matrices:logits", "matrices:values", "matrices:cotangent"))],
        "clip_by_global_norm": [Sweep(matrices[2], ("matrices:values", "matrices:logits"))],
    }


def array_of(chunk: Chunk, name: str) -> np.ndarray:
    """An array of the chunk; "matrices:x" is x with each row as a matrix, `[rows, 2, 4]`."""
    if name.startswith("matrices:"):
        return np.ascontiguousarray(getattr(chunk, name.removeprefix("matrices:")).T).reshape(-1, 2, STEPS // 2)
    return getattr(chunk, name)


class Prepared:
    """A sweep with its functions made once, so that a compiler meets them once."""

    def __init__(self, backend: Any, sweep: Sweep):
        self.backend, self.sweep = backend, sweep
        self.values = backend.compiled(sweep.fn) if backend.NAME == "jax" else sweep.fn

    def total(self, *arrays):
        return sum(part.sum() for part in self.sweep.fn(*arrays))

    def count(self, chunk: Chunk) -> tuple[int, int]:
        """NaN among the values and among the gradients."""
        backend, sweep = self.backend, self.sweep
        host = [array_of(chunk, name) for name in sweep.given]
        arrays = [backend.from_numpy(x, "int32" if x.dtype.kind == "i" else "float32") for x in host]
        if not sweep.wrt:
            return self.count_values(arrays), 0
        value, grads = backend.value_and_grad(self.total, *arrays[: sweep.wrt], constants=tuple(arrays[sweep.wrt :]))
        bad = 0
        for name, x, grad in zip(sweep.given, host, grads, strict=False):
            nan = np.isnan(backend.to_numpy(grad))
            if name == "lambdas":
                nan &= (x >= SMALLEST_NORMAL) & (x < 1)
            bad += int(nan.sum())
        # A sum is NaN if any of its terms is, and for no other reason here, so its parts are counted only then.
        return (self.count_values(arrays) if np.isnan(backend.to_numpy(value)) else 0), bad

    def count_values(self, arrays: list) -> int:
        return sum(int(np.isnan(self.backend.to_numpy(part)).sum()) for part in self.values(*arrays))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--backend", default="ponder_torch", help="the module to sweep")
    parser.add_argument("--rows", type=int, default=10_000_000, help="examples for each function")
    parser.add_argument("--function", nargs="+", help="functions to sweep (default: all)")
    args = parser.parse_args()
    backend = importlib.import_module(args.backend)
    table = sweeps(backend)
    unknown = set(args.function or ()) - table.keys()
    if unknown:
        parser.error(f"no float function is called {', '.join(sorted(unknown))}; there are {', '.join(table)}")
    chosen = {
        name: [Prepared(backend, sweep) for sweep in table[name]] for name in table if name in (args.function or table)
    }
    found = {name: np.zeros(2, np.int64) for name in chosen}
    spent = dict.fromkeys(chosen, 0.0)
    rng = np.random.default_rng(SEED)
    for start in range(0, args.rows, CHUNK):
        chunk = make_chunk(rng, start, min(CHUNK, args.rows - start))
        for name, prepared in chosen.items():
            began = time.perf_counter()
            for variant in prepared:  # remainder rules and objectives
                found[name] += variant.count(chunk)
            spent[name] += time.perf_counter() - began
    for name, (values, gradients) in found.items():
        differentiated = any(sweep.wrt for sweep in table[name])
        slopes = f"{gradients} NaN gradients" if differentiated else "not differentiated"
        print(
            f"{args.backend} {name}: {args.rows} rows, {values} NaN values, {slopes}, {spent[name]:.1f} s", flush=True
        )
    total = int(sum(counts.sum() for counts in found.values()))
    print(f"{args.backend}: {total} NaN in {len(found)} functions", flush=True)
    return int(total > 0)


if __name__ == "__main__":
    sys.exit(main())
