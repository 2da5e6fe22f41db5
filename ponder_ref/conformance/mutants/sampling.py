"""Defects of sampling and of ACT.

Where a mutant calls the right function without using its result, it is for its complaints about bad arguments.
"""

import numpy as np

import ponder_ref as R
from ponder_ref.base import ActHalting
from ponder_ref.conformance.mutants.base import Mutant, again, changed, detach
from ponder_ref.conformance.mutants.equivalents import OWN_GENERATOR, categorical
from ponder_ref.halting import as_float, step_numbers
from ponder_ref.sampling import MASK


def fewer_rounds(key, counter):
    right = R.threefry2x32(key, counter)
    return right[0] ^ np.uint32(1), right[1]


def words_swapped(key, counter):
    return R.threefry2x32(key, counter)[::-1]


def high_word_ignored(seed, example_ids, *, max_steps, draw=0, domain=0):
    return R.halting_uniforms(
        seed & MASK if 0 <= seed < 2**64 else seed, example_ids, max_steps=max_steps, draw=draw, domain=domain
    )


def steps_from_zero(seed, example_ids, *, max_steps, draw=0, domain=0):
    right = R.halting_uniforms(seed, example_ids, max_steps=max_steps, draw=draw, domain=domain)
    return np.roll(right, 1, axis=0)


def draw_ignored(seed, example_ids, *, max_steps, draw=0, domain=0):
    R.halting_uniforms(seed, example_ids, max_steps=max_steps, draw=draw, domain=domain)
    return R.halting_uniforms(seed, example_ids, max_steps=max_steps, domain=domain)


def one_stream(lambdas, seed, example_ids, *, draw=0, lengths=None):
    R.draw_steps(lambdas, seed, example_ids, draw=draw, lengths=lengths)
    rng = np.random.default_rng([seed % 2**63, draw])
    return R.sample_steps(lambdas, rng.random(lambdas.shape), lengths=lengths)


def unconditional(lambdas, uniforms, *, lengths=None):
    R.sample_steps(lambdas, uniforms, lengths=lengths)
    lam = np.where(np.isnan(lambdas), 0, lambdas)
    p = lam * np.concatenate([np.ones_like(lam[:1]), np.cumprod(1 - lam, axis=0)[:-1]])
    return R.sample_steps(p, uniforms, lengths=lengths)


def unconditional_draw(lambdas, seed, example_ids, *, draw=0, lengths=None):
    R.draw_steps(lambdas, seed, example_ids, draw=draw, lengths=lengths)
    return unconditional(
        lambdas, R.halting_uniforms(seed, example_ids, max_steps=len(lambdas), draw=draw), lengths=lengths
    )


def never_halted_is_zero(lambdas, uniforms, *, lengths=None):
    steps = R.sample_steps(lambdas, uniforms, lengths=lengths)
    return np.where((uniforms < lambdas).any(axis=0), steps, 0)


def not_strict(lambdas, uniforms, *, lengths=None):
    return R.sample_steps(lambdas, np.nextafter(uniforms, -1).astype(uniforms.dtype), lengths=lengths)


def lengths_ignored(lambdas, uniforms, *, lengths=None):
    R.sample_steps(lambdas, uniforms, lengths=lengths)
    return R.sample_steps(lambdas, uniforms)


def quantile_strict(log_p, *, q):
    R.quantile_steps(log_p, q=q)
    n, sums = step_numbers(log_p), np.cumsum(np.exp(log_p), axis=0)
    last = np.where(log_p > -np.inf, n, 1).max(axis=0)
    return np.where(sums > q, n, last).min(axis=0)


def quantile_of_survival(log_p, *, q):
    return np.maximum(1, R.quantile_steps(log_p, q=q) - 1)


def act_counted_twice(lambdas, *, epsilon=0.01):
    lam = as_float(lambdas)
    R.act_halting(lambdas, epsilon=epsilon)
    n = step_numbers(lam)
    sums = np.cumsum(np.real(lam), axis=0) + np.real(lam)
    steps = np.where(sums >= 1 - epsilon, n, len(lam)).min(axis=0)
    before = np.where(n < steps, lam, 0)
    rest = 1 - before.sum(axis=0)
    return ActHalting(np.where(n == steps, rest, before), steps, rest)


def act_remainder_lost(lambdas, *, epsilon=0.01):
    right = R.act_halting(lambdas, epsilon=epsilon)
    limit = np.cumsum(np.real(lambdas), axis=0)[-1] < 1 - epsilon
    weights = np.concatenate([right.weights[:-1], np.where(limit, as_float(lambdas)[-1], right.weights[-1])[None]])
    return ActHalting(weights, right.steps, right.remainder)


def act_last_weight_is_lambda(lambdas, *, epsilon=0.01):
    right = R.act_halting(lambdas, epsilon=epsilon)
    n = step_numbers(lambdas)
    return ActHalting(np.where(n == right.steps, as_float(lambdas), right.weights), right.steps, right.remainder)


def act_cost_detached(steps, remainder, *, tau):
    return R.act_cost(steps, detach(remainder), tau=tau)


def act_cost_without_steps(steps, remainder, *, tau):
    return R.act_cost(steps, remainder, tau=tau) - tau * np.asarray(steps)


def act_tau_ignored(steps, remainder, *, tau):
    return R.act_cost(steps, remainder, tau=tau) * 0 + R.act_cost(steps, remainder, tau=1.0)


def act_added_twice(weights, y_hat):
    return R.act_output(weights, y_hat) + as_float(y_hat)[0] * 0.5


def act_moving_average(weights, y_hat):
    R.act_output(weights, y_hat)
    state = np.zeros(y_hat.shape[1:])
    for w, y in zip(as_float(weights), as_float(y_hat), strict=True):
        w = w.reshape(*w.shape, *[1] * (y.ndim - w.ndim))
        state = np.where(w == 0, state, w * y + (1 - w) * state)
    return state


def _own(name: str, defect: str, change) -> Mutant:
    """Another generator than the standard's, which says so, on changed arguments."""

    def body(right, given):
        again(right, given)  # for its complaints
        return again(categorical, {**given, **change(given)})

    return Mutant(name, defect, "S5", {**changed("draw_steps", body), "NOT_OFFERED": OWN_GENERATOR})


OWN = (
    _own("own-lengths", "another generator, without lengths", lambda given: {"lengths": None}),
    _own("own-draw", "another generator, 5 bits of draw", lambda given: {"draw": given["draw"] % 32}),
    _own("own-ids", "another generator, 16 bits of id", lambda given: {"example_ids": given["example_ids"] & 0xFFFF}),
    _own("own-seed", "another generator, 34 bits of seed", lambda given: {"seed": given["seed"] % 2**34}),
    _own(
        "own-mix",
        "another generator, the draw added to the seed",
        lambda given: {"seed": (given["seed"] + 1000 * given["draw"]) % 2**64, "draw": 0},
    ),
)
MUTANTS = (
    *OWN,
    Mutant("threefry-wrong", "a bit of Threefry is wrong", "S1", {"threefry2x32": fewer_rounds}),
    Mutant("threefry-swapped", "the two words are swapped", "S1", {"threefry2x32": words_swapped}),
    Mutant("seed-high-word", "the high half of the seed has no effect", "S2", {"halting_uniforms": high_word_ignored}),
    Mutant("uniform-steps-from-zero", "uniforms of another step", "S2", {"halting_uniforms": steps_from_zero}),
    Mutant("draw-ignored", "repetitions repeat themselves", "S2", {"halting_uniforms": draw_ignored}),
    Mutant(
        "one-stream",
        "one random stream for the batch: a draw changes with its neighbours",
        "S5",
        {"draw_steps": one_stream},
    ),
    Mutant("unconditional-p", "halts with the unconditional pₙ instead of λₙ", "S3", {"sample_steps": unconditional}),
    Mutant(
        "unconditional-draw", "draws with the unconditional pₙ instead of λₙ", "S5", {"draw_steps": unconditional_draw}
    ),
    Mutant(
        "never-halted", "examples that never halt are not halted at N", "S3", {"sample_steps": never_halted_is_zero}
    ),
    Mutant("sample-not-strict", "halts if u ≤ λ", "S3", {"sample_steps": not_strict}),
    Mutant("sample-lengths", "no forced halt at Nᵢ", "S3", {"sample_steps": lengths_ignored}),
    Mutant("quantile-strict", "Σp > q instead of ≥", "S6", {"quantile_steps": quantile_strict}),
    Mutant("quantile-one-short", "the step before the quantile", "S6", {"quantile_steps": quantile_of_survival}),
    Mutant(
        "act-counted-twice", "the current λ counts twice in the stopping test", "A1", {"act_halting": act_counted_twice}
    ),
    Mutant("act-remainder-lost", "the remainder is lost at the step limit", "A2", {"act_halting": act_remainder_lost}),
    Mutant(
        "act-no-remainder", "the last weight is λ, not the remainder", "A2", {"act_halting": act_last_weight_is_lambda}
    ),
    Mutant("act-cost-detached", "the ponder cost is detached: τ has no effect", "A5", {"act_cost": act_cost_detached}),
    Mutant("act-cost-no-steps", "the cost lacks N", "A3", {"act_cost": act_cost_without_steps}),
    Mutant("act-tau-ignored", "τ is not multiplied in", "A3", {"act_cost": act_tau_ignored}),
    Mutant("act-added-twice", "the state is added once weighted and once not", "A4", {"act_output": act_added_twice}),
    Mutant(
        "act-moving-average", "a moving average instead of a weighted sum", "A4", {"act_output": act_moving_average}
    ),
)
