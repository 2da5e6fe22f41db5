"""The law of drawn steps, by χ² at α = 1e-6 with fixed seeds (spec S5), and what they may depend on (spec S2, S5)."""

import math
from typing import Any

import numpy as np

import ponder_ref
from ponder_ref.conformance.compare import Violation
from ponder_ref.conformance.registry import ANY_DTYPE, Trial, check

NORMAL_QUANTILE = 4.753424308822899  # of 1 − 1e-6
ROWS = 20_000


def chi_square_limit(freedom: int) -> float:
    """The 1 − 1e-6 quantile of χ², by Wilson and Hilferty's cube-root normal approximation."""
    spread = 2 / (9 * freedom)
    return freedom * (1 - spread + NORMAL_QUANTILE * math.sqrt(spread)) ** 3


def assert_law(what: str, counts: np.ndarray, probabilities: np.ndarray) -> None:
    """Observed counts against probabilities; impossible outcomes must not occur."""
    possible = probabilities > 0
    if counts[~possible].any():
        raise Violation("S5", f"{what}: a step of probability 0 was drawn; counts {counts.tolist()}")
    expected = probabilities[possible] * counts.sum()
    statistic = float(((counts[possible] - expected) ** 2 / expected).sum())
    limit = chi_square_limit(max(1, int(possible.sum()) - 1))
    if statistic > limit:
        share = np.round(counts / counts.sum(), 4).tolist()
        raise Violation(
            "S5",
            f"{what}: χ² {statistic:.1f} > {limit:.1f}; drawn {share}, should be {probabilities.round(4).tolist()}",
        )


def draw(trial: Trial, lambdas: np.ndarray, ids: np.ndarray, seed: int, lengths: Any = None, **keywords) -> np.ndarray:
    """Steps for a column of λ, the same for every example id."""
    given = {"lambdas": np.broadcast_to(lambdas[:, None], (len(lambdas), len(ids))).copy(), "example_ids": ids}
    given |= {} if lengths is None else {"lengths": lengths}
    steps = trial.subject.call("draw_steps", given, {"seed": seed, **keywords}, trial.dtype)["result"].astype(np.int64)
    if steps.min() < 1 or steps.max() > len(lambdas):
        raise Violation("S5", f"draw_steps: {steps.min()}..{steps.max()} outside 1..{len(lambdas)}")
    return steps


LAMBDAS = (
    np.array([0.5] * 6),
    np.array([0.25, 0.125, 0.5, 0.0, 0.25, 0.75]),
    np.array([0.0625] * 6),
    np.array([0.5, 1.0, 0.5, 0.5, 0.5, 0.5]),
    np.array([0.0, 0.0, 0.25, 0.0, 0.0, 0.0]),
)


@check("S5", "sampling", "draw_steps", dtypes=ANY_DTYPE)
def drawn_steps_follow_the_halting_distribution(trial: Trial) -> None:
    """Over example ids, over draws, and over seeds."""
    for k, lambdas in enumerate(LAMBDAS):
        p = np.exp(ponder_ref.log_halting_from_lambdas(lambdas))
        steps = draw(trial, lambdas, np.arange(ROWS), seed=trial.seed + k)
        assert_law(f"draw_steps over ids, λ = {lambdas.tolist()}", np.bincount(steps, minlength=len(p) + 1)[1:], p)
    lambdas = LAMBDAS[1]
    p = np.exp(ponder_ref.log_halting_from_lambdas(lambdas))
    ids = np.arange(500)
    for what, runs in (
        ("draws", [{"seed": 5, "draw": d} for d in range(20)]),
        ("seeds", [{"seed": s} for s in range(20)]),
    ):
        steps = np.concatenate([draw(trial, lambdas, ids, **run) for run in runs])
        assert_law(f"draw_steps over {what}", np.bincount(steps, minlength=len(p) + 1)[1:], p)


@check("S5", "sampling", "draw_steps", "H4", dtypes=ANY_DTYPE)
def drawn_steps_follow_the_cut_distribution(trial: Trial) -> None:
    """The law of H2 with each example's own Nᵢ."""
    lambdas, lengths = LAMBDAS[2], np.arange(ROWS) % 6 + 1
    steps = draw(trial, lambdas, np.arange(ROWS), seed=trial.seed + 7, lengths=lengths)
    for length in range(2, 7):  # of a single step nothing is left to chance
        p = np.exp(ponder_ref.log_halting_from_lambdas(lambdas, lengths=np.asarray(length)))
        counts = np.bincount(steps[lengths == length], minlength=7)[1:]
        assert_law(f"draw_steps cut at {length}, λ = {lambdas.tolist()}", counts, p)


# Numbers that generators are mixed with: powers of two, round numbers, and the usual primes.
MIXERS = (3, 5, 7, 10, 13, 31, 33, 37, 97, 100, 101, 127, 255, 997, 1000, 1009, 4095, 7919, 10_000, 10_007, 65_537)
MIXERS += (10**5, 10**6, 1_000_003, 2**31 - 1, 10**9, 10**9 + 7, 0x9E3779B9, 0x85EBCA6B, 0x9E3779B97F4A7C15)


def _fields() -> list[tuple[int, int, int]]:
    """What is added to the seed, to the draw, and combined with the ids by exclusive or: each bit and each mixer."""
    fields = [(0, 0, 0)]
    fields += [(2**bit, 0, 0) for bit in range(64)] + [(mixer, 0, 0) for mixer in MIXERS]
    fields += [(0, 2**bit, 0) for bit in range(12)]
    return fields + [(0, 0, 2**bit) for bit in range(32)]


@check("S5", "sampling", "draw_steps", dtypes=ANY_DTYPE)
def every_bit_of_the_fields_counts(trial: Trial) -> None:
    """No two of many seeds, draws and sets of ids draw alike: no bit is left out, no field mixed with another.

    The share of equal steps should be Σp² = ⅓; 1 is 45 standard deviations away from it, and 12 are allowed.
    """
    lambdas, ids = np.array([0.5, 0.5, 0.5, 0.5, 1.0, 0.5]), np.arange(1024)
    p = np.exp(ponder_ref.log_halting_from_lambdas(lambdas))
    fields = _fields()
    runs = []
    for seed, repetition, mask in fields:
        some = (ids ^ mask).astype(np.uint32).view(np.int32)
        runs.append(draw(trial, lambdas, some, seed=(trial.seed + seed) % 2**64, draw=repetition))
    steps = np.stack(runs)
    taken = (steps[None] == np.arange(1, 7)[:, None, None]).astype(np.float32)
    equal = (taken @ taken.transpose(0, 2, 1)).sum(axis=0)
    share = (p**2).sum()
    limit = len(ids) * share + 12 * math.sqrt(len(ids) * share * (1 - share))
    alike = np.argwhere(np.triu(equal > limit, 1))
    if len(alike):
        one, other = (dict(zip(("seed", "draw", "id"), fields[i], strict=True)) for i in alike[0])
        raise Violation(
            "S5",
            f"draw_steps: {one} and {other} on top of seed {trial.seed}, draw 0, ids 0 to {len(ids) - 1} give the same"
            f" step {int(equal[tuple(alike[0])])} times of {len(ids)}, should be about {len(ids) * share:.0f}",
        )


@check("S5", "sampling", "draw_steps", dtypes=ANY_DTYPE)
def drawn_steps_are_independent(trial: Trial) -> None:
    """Pairs of neighbouring ids, of two draws, and of two seeds: every pair of steps as often as its product says."""
    lambdas = np.array([0.5, 0.5, 0.5, 0.5, 1.0, 0.5])
    p = np.exp(ponder_ref.log_halting_from_lambdas(lambdas))
    ids = np.arange(ROWS)
    first = draw(trial, lambdas, ids, seed=trial.seed + 11)
    pairs = {
        "neighbouring ids": (first[:-1:2], first[1::2]),
        "two draws": (first, draw(trial, lambdas, ids, seed=trial.seed + 11, draw=1)),
        "two seeds": (first, draw(trial, lambdas, ids, seed=trial.seed + 12)),
        "two high words of the seed": (first, draw(trial, lambdas, ids, seed=trial.seed + 11 + 2**32)),
    }
    for what, (a, b) in pairs.items():
        if (a == b).all():
            raise Violation("S5", f"draw_steps: {what} give the same steps throughout")
        counts = np.bincount((a - 1) * len(p) + b - 1, minlength=len(p) ** 2)
        assert_law(f"pairs of steps of {what}", counts, np.outer(p, p).ravel())


@check("S5", "sampling", "draw_steps", dtypes=ANY_DTYPE)
def a_draw_is_the_example_s_own(trial: Trial) -> None:
    """The same seed, id and draw give the same steps alone, in any order, beside anybody, and again."""
    lambdas, ids = np.array([0.25, 0.5, 0.25, 0.5, 0.25, 0.5]), np.arange(100, 164)
    whole = draw(trial, lambdas, ids, seed=trial.seed)
    order = trial.rng().permutation(len(ids))
    others = {
        "again": (draw(trial, lambdas, ids, seed=trial.seed), whole),
        "in another order": (draw(trial, lambdas, ids[order], seed=trial.seed), whole[order]),
        "in half the batch": (draw(trial, lambdas, ids[::2], seed=trial.seed), whole[::2]),
        "alone": (np.array([draw(trial, lambdas, ids[i : i + 1], seed=trial.seed)[0] for i in range(16)]), whole[:16]),
    }
    for what, (got, want) in others.items():
        if not np.array_equal(got, want):
            raise Violation("S5", f"draw_steps {what}: {got[:8].tolist()}…, should be {want[:8].tolist()}…")


@check("S3", "sampling", "sample_steps", "halting_uniforms", dtypes=ANY_DTYPE)
def uniforms_and_sampling_give_the_law(trial: Trial) -> None:
    """The two halves together, for a backend whose draw_steps may do it otherwise; every uniform lies in [0, 1)."""
    lambdas = LAMBDAS[1]
    arguments = {"seed": trial.seed, "max_steps": len(lambdas)}
    u = trial.subject.call("halting_uniforms", {"example_ids": np.arange(ROWS)}, arguments, trial.dtype)["result"]
    if not ((u >= 0) & (u < 1)).all():
        raise Violation("S2", f"halting_uniforms: {u.min()}..{u.max()} outside [0, 1)")
    cells = np.bincount((u.astype(np.float64) * 64).astype(np.int64).ravel(), minlength=64)
    assert_law("halting_uniforms in 64 cells", cells, np.full(64, 1 / 64))
    given = {"lambdas": np.broadcast_to(lambdas[:, None], u.shape).copy(), "uniforms": u.astype(np.float64)}
    steps = trial.subject.call("sample_steps", given, {}, trial.dtype)["result"].astype(np.int64)
    p = np.exp(ponder_ref.log_halting_from_lambdas(lambdas))
    assert_law("sample_steps of halting_uniforms", np.bincount(steps, minlength=len(p) + 1)[1:], p)
