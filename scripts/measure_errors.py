"""Measure how far a backend is from the truth, in units of the spec's tolerances.

    python -m scripts.measure_errors [--backend ponder_torch ponder_jax] [--dtype float32 ...] [--rounds 1]

One line a quantity of spec/tolerances.toml and dtype: the largest error found, as a share of what is allowed and
divided by scale + atol/rtol, and where it was found. Log-probabilities, losses and gradients of a thousand steps and of
saturated logits are compared with 50-digit arithmetic, all else with the float64 reference, whose own rounding then
counts as the backend's. A round of both backends takes some minutes. Exit code 1 if anything exceeds its tolerance.
"""

import argparse
import importlib
import itertools
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from mpmath import mp

from ponder_ref.conformance.cases import CORNERS, Seeded
from ponder_ref.conformance.check_gradients import ponder_arguments
from ponder_ref.conformance.compare import QUANTITIES, bound, quantity, tolerance
from ponder_ref.conformance.makers import MAKERS
from ponder_ref.conformance.objectives import OBJECTIVES
from ponder_ref.conformance.oracle import INTEGER_FIELDS, decision, expected, terms
from ponder_ref.conformance.spec_data import tolerances
from ponder_ref.conformance.subject import PRIORS, Subject, round_to
from scripts.vectors import maths

DIGITS = 50
SIZES = ((1, 64), (2, 256), (8, 1024), (50, 512), (1000, 64))  # steps and examples
# Optimisers take one small tensor a call, priors and schedules numbers: their size is the number of calls.
SMALL = (*PRIORS, "adam_update", "orthogonalize", "muon_update", "clip_by_global_norm", "schedule", "threefry2x32")
SMALL_CALLS = 60
# Optimisers are defined in float32 and float64; the others of these take no float array.
FULL_PRECISION_ONLY = (*SMALL, "halting_uniforms")


class Found(NamedTuple):
    """One comparison: the quantity, its worst error as a share of the tolerance and of the scale, and where."""

    quantity: str
    share: float
    relative: float
    where: str


def _rows(x: np.ndarray) -> list[list[Any]]:
    """The columns of `[N, B]` as lists of exact numbers."""
    return [[mp.mpf(float(value)) for value in column] for column in np.asarray(x, np.float64).T]


def _array(rows: list[list[Any]]) -> np.ndarray:
    return np.array([[float(value) for value in row] for row in rows]).T


def exact_log_halting(z: np.ndarray, remainder: str) -> np.ndarray:
    """log p of logits `[N, B]` by 50-digit arithmetic, rounded to float64 (H1 to H3)."""
    with mp.workdps(DIGITS):
        return _array([maths.log_halting(row, remainder, len(row)) for row in _rows(z)])


class ExactLoss(NamedTuple):
    """`ponder_loss(log_halting(z), ℓ, log_prior).loss`, its gradients, and the sum of the magnitudes of their terms."""

    loss: float
    by_logits: np.ndarray
    by_losses: np.ndarray
    size: float
    noise: np.ndarray


def exact_loss(z: np.ndarray, losses: np.ndarray, log_prior: np.ndarray, beta: float, remainder: str) -> ExactLoss:
    """The loss of logits and step losses `[N, B]` and a prior `[N]` by 50-digit arithmetic (L4, L5)."""
    with mp.workdps(DIGITS):
        weight, (prior,) = mp.mpf(beta), _rows(np.asarray(log_prior)[:, None])
        total, size, by_logits, by_losses, noise = mp.mpf(0), mp.mpf(0), [], [], []
        for row, costs in zip(_rows(z), _rows(losses), strict=True):
            log_p = maths.log_halting(row, remainder, len(row))
            total += maths.expectation(log_p, costs) + weight * maths.kl(log_p, prior)
            p = [mp.exp(x) for x in log_p]
            surprise = [x - q for x, q in zip(log_p, prior, strict=True)]
            terms_of = [abs(c) + weight * abs(s) for c, s in zip(costs, surprise, strict=True)]
            size += mp.fsum(a * b for a, b in zip(p, terms_of, strict=True))
            share = mp.mpf(1) / z.shape[1]
            slope = maths.grad_logits(row, maths.loss_costs(log_p, costs, prior, weight, len(row)), remainder, len(row))
            by_logits.append([share * g for g in slope])
            by_losses.append([share * q for q in p])
            flow = [share * q * (t + weight) for q, t in zip(p, terms_of, strict=True)]
            noise.append(_magnitudes(row, p, flow, remainder))
        examples = z.shape[1]
        return ExactLoss(
            float(total / examples), _array(by_logits), _array(by_losses), float(size / examples), _array(noise)
        )


def _magnitudes(z: list[Any], p: list[Any], flow: list[Any], remainder: str) -> list[Any]:
    """H9 with the sum of the magnitudes of its terms in the place of their sum."""
    if remainder == "normalize":
        whole = mp.fsum(flow)
        flow = [f + q * whole for f, q in zip(flow, p, strict=True)]
    made, after = [mp.mpf(0)] * len(z), mp.mpf(0)
    for n in reversed(range(len(z))):
        if remainder == "normalize" or n < len(z) - 1:
            halt = mp.exp(maths.log_sigmoid(z[n]))
            made[n] = mp.exp(maths.log_sigmoid(-z[n])) * flow[n] + halt * after
        after += flow[n]
    return made


def thousand_steps(rng: np.random.Generator, examples: int = 6) -> np.ndarray:
    """Logits `[1000, examples]` of several kinds: small λ throughout, wide ones, and some with saturated entries."""
    spread = np.resize([0.1, 1.0, 3.0], examples)
    z = rng.normal(size=(1000, examples)) * spread + np.resize([-7.0, -3.0, -6.0, 0.0], examples)
    saturated = (rng.random(z.shape) < 0.003) & (np.arange(examples) % 2 == 1)
    return np.where(saturated, rng.choice(CORNERS, size=z.shape), z).astype(np.float32).astype(np.float64)


def saturated_triples() -> np.ndarray:
    """Every triple of saturated and plain logits, `[3, 343]`."""
    return np.array(list(itertools.product((1e4, -1e4, 89.0, -89.0, 40.0, -17.0, 0.0), repeat=3))).T


LOGITS = {"a thousand steps": lambda: thousand_steps(np.random.default_rng(7)), "saturated": saturated_triples}


def compare(kind: str, dtype: str, got: np.ndarray, want: np.ndarray, magnitudes: Any, where: str) -> Found:
    """The worst entry; one that is NaN or infinite where it should not be counts as infinitely wrong."""
    got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    entry = tolerance(kind, dtype)
    allowed = np.broadcast_to(bound(entry, want, magnitudes), want.shape)
    with np.errstate(all="ignore"):
        off = np.where((got == want) | (np.isnan(got) & np.isnan(want)), 0.0, np.abs(got - want))
        share = np.where(off == 0, 0.0, np.where(np.isfinite(off), off / allowed, np.inf))
        scale = (allowed - entry["atol"]) / entry["rtol"] if entry["rtol"] else np.ones(want.shape)
        relative = np.where(off == 0, 0.0, off / (scale + entry["atol"] / entry["rtol"] if entry["rtol"] else 1.0))
    if not share.size:
        return Found(kind, 0.0, 0.0, where)
    at = np.unravel_index(np.argmax(share), share.shape)
    return Found(kind, float(share[at]), float(relative[at]), where)


def chosen_steps(function: str, arrays: dict, arguments: dict, got: dict, want: dict, dtype: str):
    """How near to its threshold a sum was where a step was chosen differently, as a share of `cdf`."""
    sums, threshold = decision(function, arrays, arguments) or (np.zeros(1), 0.0)
    field = INTEGER_FIELDS[function]
    differ = got[field].astype(np.int64) != want[field]
    margin = tolerance("cdf", dtype)["atol"] * (1 + abs(threshold))
    n = np.arange(1, len(sums) + 1).reshape(-1, *[1] * want[field].ndim)
    between = (n >= np.minimum(got[field], want[field])) & (n < np.maximum(got[field], want[field]))
    worst = float(np.where(between, np.abs(sums - threshold), 0).max(initial=0))
    return differ, Found("cdf", worst / margin, worst, function)


def functions(subject: Subject, dtype: str, rng: np.random.Generator) -> Iterator[Found]:
    """Every function of the interface once for each size, on seeded arguments, against the reference."""
    half = dtype not in ("float64", "float32")
    for function, make in MAKERS.items():
        if half and function in FULL_PRECISION_ONLY:
            continue
        sizes = ((4, 8),) * SMALL_CALLS if function in SMALL else SIZES
        for steps, examples in sizes:
            arrays, arguments = make(Seeded(rng, steps, (examples,)))
            arrays = {name: round_to(dtype, array) for name, array in arrays.items()}
            got = subject.call(function, arrays, arguments, dtype)
            loose = {"dtype": "float64"} if function in PRIORS else {}
            want, sizes_of = expected(function, arrays, {**arguments, **loose}), terms(function, arrays, arguments)
            differ, where = np.zeros((), bool), f"{function}, N = {steps}" if function not in SMALL else function
            if decision(function, arrays, arguments) is not None:
                differ, found = chosen_steps(function, arrays, arguments, got, want, dtype)
                yield found
            for field, value in got.items():
                if INTEGER_FIELDS.get(function) == field and decision(function, arrays, arguments) is not None:
                    continue
                kind = "exact" if INTEGER_FIELDS.get(function) == field else quantity(function, field)
                kind = "exact" if function not in QUANTITIES else kind
                wanted = np.where(differ, value, want[field])  # an example that took another step has other weights
                yield compare(kind, dtype, value, wanted, sizes_of.get(field), where)


def gradients(subject: Subject, dtype: str, rng: np.random.Generator) -> Iterator[Found]:
    """Gradients of the loss, of the expected steps and by λ, against the analytic ones."""
    for steps, examples in SIZES[:4]:
        source = Seeded(rng, steps, (min(examples, 256),))
        arrays, arguments = ponder_arguments(source)
        plain, _ = ponder_arguments(source, weights=False)
        plain = {name: plain[name] for name in ("halt_logits", "lengths") if name in plain}
        inside = {
            "lambdas": source.inside((steps, *source.batch)),
            "step_losses": source.values((steps, *source.batch)),
            "log_prior": np.full(steps, -np.log(steps)),
        }
        for name, given in (
            ("grad_ponder_loss", arrays),
            ("grad_expected_steps", plain),
            ("grad_ponder_loss_by_lambda", inside),
        ):
            given = {key: round_to(dtype, value) for key, value in given.items()}
            objective = OBJECTIVES[name].make(subject, given, arguments, dtype)
            wrt = [given[key] for key in objective.wrt]
            _, grads = subject.gradients(objective.fn, wrt, dtype, objective.constants)
            for key, grad, want, noise in zip(
                objective.wrt, grads, objective.wanted, objective.magnitudes, strict=True
            ):
                yield compare("gradient", dtype, grad, want, noise, f"{name} by {key}, N = {steps}")


def precise(subject: Subject, dtype: str, rng: np.random.Generator) -> Iterator[Found]:
    """A thousand steps, and saturated ones, against 50-digit arithmetic."""
    backend = subject.backend
    for made, remainder in itertools.product((thousand_steps(rng), saturated_triples()), ("last", "normalize")):
        z, steps = round_to(dtype, made), len(made)
        losses = round_to(dtype, rng.normal(size=z.shape) + np.linspace(0, 2, steps)[:, None])
        prior = round_to(dtype, np.full(steps, -np.log(steps)))
        got = subject.call("log_halting", {"halt_logits": z}, {"remainder": remainder}, dtype)["result"]
        yield compare(
            "log_p", dtype, got, exact_log_halting(z, remainder), None, f"log_halting, N = {steps}, 50 digits"
        )
        held = subject.array("log_prior", prior, dtype)

        def loss(logits, costs, remainder=remainder, held=held):
            log_p = backend.log_halting(logits, remainder=remainder)
            return backend.ponder_loss(log_p, costs, held, beta=0.25).loss

        value, (by_logits, by_losses) = subject.gradients(loss, [z, losses], dtype)
        truth = exact_loss(z, losses, prior, 0.25, remainder)
        where = f"ponder_loss, N = {steps}, 50 digits"
        yield compare("loss", dtype, value, np.asarray(truth.loss), np.asarray(truth.size), where)
        yield compare("gradient", dtype, by_logits, truth.by_logits, truth.noise, f"{where}, by halt_logits")
        yield compare("gradient", dtype, by_losses, truth.by_losses, truth.by_losses, f"{where}, by step_losses")


MEASURES: tuple[Callable[..., Iterator[Found]], ...] = (functions, gradients, precise)


def measure(backend: Any, dtype: str, rounds: int) -> dict[str, Found]:
    """The worst of each quantity over all measurements."""
    subject, worst = Subject(backend, backend.__name__), {}
    rng = np.random.default_rng(20210712)
    for _ in range(rounds):
        for take in MEASURES:
            for found in take(subject, dtype, rng):
                if found.quantity not in worst or found.share > worst[found.quantity].share:
                    worst[found.quantity] = found
    return worst


def show(label: str, dtype: str, worst: dict[str, Found]) -> None:
    for name in tolerances():
        if name in worst:
            found = worst[name]
            print(f"{label:13}{name:12}{dtype:10}{found.share:10.2e}{found.relative:12.1e}   {found.where}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m scripts.measure_errors", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--backend", nargs="+", default=["ponder_torch", "ponder_jax"], help="modules to measure")
    parser.add_argument("--dtype", nargs="+", default=["float64", "float32", "bfloat16", "float16"])
    parser.add_argument("--rounds", type=int, default=1, help="how many times everything is drawn anew")
    parser.add_argument("--bare", action="store_true", help=argparse.SUPPRESS)  # in a process made for one dtype
    args = parser.parse_args()
    if not args.bare:
        print(f"{'backend':13}{'quantity':12}{'dtype':10}{'of allowed':>10}{'relative':>12}   worst at", flush=True)
    bad = False
    for name in args.backend:
        backend = importlib.import_module(name)
        for dtype in args.dtype:
            needed = getattr(backend, "ENVIRONMENT", {}).get(dtype, {})
            if dtype not in backend.DTYPES:
                continue
            if any(os.environ.get(key) != value for key, value in needed.items()):
                again = [sys.executable, "-m", "scripts.measure_errors", "--bare", "--backend", name, "--dtype", dtype]
                done = subprocess.run([*again, "--rounds", str(args.rounds)], env=os.environ | needed)
                bad |= done.returncode != 0
                continue
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)  # the reference warns of the NaN it is given on purpose
                worst = measure(backend, dtype, args.rounds)
            show(name, dtype, worst)
            bad |= any(found.share > 1 for found in worst.values())
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
