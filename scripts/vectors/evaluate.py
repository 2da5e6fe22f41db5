"""From the arrays and arguments of a case to its expected results, for every function that has vectors.

Gradients are computed by the formulas of the specification and confirmed here by numerical differentiation.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

from mpmath import mp

from scripts.vectors import exact, maths, optim
from scripts.vectors.format import DIGITS, Array, columns, from_columns, number

Arrays = dict[str, Array]
Results = dict[str, Array]
# Entries of a longer example whose gradient is confirmed numerically: the ends and the middle (all of a short one).
CONFIRM_ALL_UP_TO = 16
CONFIRM_TOLERANCE = mp.mpf("1e-30")


def _scalar(x: Any, dtype: str = "float64") -> Array:
    return Array(dtype, (), (x,))


def _lengths(arrays: Arrays, steps: int, size: int) -> list[int]:
    return [int(x) for x in arrays["lengths"].data] if "lengths" in arrays else [steps] * size


def _weights(arrays: Arrays, size: int) -> list[mp.mpf]:
    a = arrays.get("weights")
    return [number(a, i) for i in range(size)] if a else [mp.mpf(1)] * size


def _priors(log_prior: Array, size: int) -> list[list[mp.mpf]]:
    """The prior of each example, an [N] prior being that of all."""
    cols = columns(log_prior)
    return cols * size if len(log_prior.shape) == 1 else cols


def _distribution(arrays: Arrays, arguments: dict[str, Any], name: str, rule: Callable[..., list[mp.mpf]]) -> Results:
    a = arrays[name]
    cols = columns(a)
    lengths = _lengths(arrays, a.shape[0], len(cols))
    made = [rule(col, arguments.get("remainder", "last"), length) for col, length in zip(cols, lengths, strict=True)]
    return {"result": from_columns(made, a.shape)}


def log_halting(arrays: Arrays, arguments: dict[str, Any]) -> Results:
    """H1 to H4."""
    return _distribution(arrays, arguments, "halt_logits", maths.log_halting)


def log_halting_from_lambdas(arrays: Arrays, arguments: dict[str, Any]) -> Results:
    """H5."""
    return _distribution(arrays, arguments, "lambdas", maths.log_halting_from_lambdas)


def halting_lengths(arrays: Arrays, arguments: dict[str, Any]) -> Results:
    """H6."""
    a = arrays["halt_logits"]
    epsilon, least = mp.mpf(arguments["epsilon"]), arguments.get("min_steps", 1)
    return {"result": Array("int32", a.shape[1:], tuple(maths.halting_length(z, epsilon, least) for z in columns(a)))}


def expected_steps(arrays: Arrays, arguments: dict[str, Any]) -> Results:
    """H7."""
    a = arrays["log_p"]
    count = [mp.mpf(n) for n in range(1, a.shape[0] + 1)]
    return {"result": Array("float64", a.shape[1:], tuple(maths.expectation(lp, count) for lp in columns(a)))}


def _over_steps(weights: Array, y_hat: Array, rule: Callable[[list[Any], list[Any]], Any], plain: bool) -> Results:
    """``rule(weights of an example, its entries of y_hat over the steps)`` for every entry of the result."""
    steps, size = weights.shape[0], math.prod(weights.shape[1:])
    trailing = math.prod(y_hat.shape[len(weights.shape) :])
    made = []
    for at in range(size * trailing):
        here, there = (
            [n * size + at // trailing for n in range(steps)],
            [n * size * trailing + at for n in range(steps)],
        )
        if plain:
            made.append(rule([weights.data[i] for i in here], [y_hat.data[i] for i in there]))
        else:
            made.append(rule([number(weights, i) for i in here], [number(y_hat, i) for i in there]))
    return {"result": Array("float64", y_hat.shape[1:], tuple(made))}


def expected_prediction(arrays: Arrays, arguments: dict[str, Any]) -> Results:
    """H8."""
    return _over_steps(arrays["log_p"], arrays["y_hat"], maths.expectation, plain=False)


def geometric_log_prior(arrays: Arrays, arguments: dict[str, Any]) -> Results:
    """P1 and P2."""
    made = maths.geometric_log_prior(
        mp.mpf(arguments["lambda_p"]), arguments["max_steps"], arguments.get("remainder", "normalize")
    )
    return {"result": from_columns([made], (len(made),))}


def uniform_log_prior(arrays: Arrays, arguments: dict[str, Any]) -> Results:
    """P3."""
    steps = arguments["max_steps"]
    return {"result": Array("float64", (steps,), (-mp.log(steps),) * steps)}


def poisson_log_prior(arrays: Arrays, arguments: dict[str, Any]) -> Results:
    """P4."""
    made = maths.poisson_log_prior(
        mp.mpf(arguments["rate"]), arguments["max_steps"], arguments.get("remainder", "normalize")
    )
    return {"result": from_columns([made], (len(made),))}


def expected_loss(arrays: Arrays, arguments: dict[str, Any]) -> Results:
    """L1."""
    return _over_steps(arrays["log_p"], arrays["step_losses"], maths.expectation, plain=False)


def kl_divergence(arrays: Arrays, arguments: dict[str, Any]) -> Results:
    """L2."""
    a = arrays["log_p"]
    cols = columns(a)
    made = [maths.kl(lp, lq) for lp, lq in zip(cols, _priors(arrays["log_prior"], len(cols)), strict=True)]
    return {"result": Array("float64", a.shape[1:], tuple(made))}


def weighted_mean(arrays: Arrays, arguments: dict[str, Any]) -> Results:
    """L3."""
    a = arrays["values"]
    values = [number(a, i) for i in range(len(a.data))]
    return {"result": _scalar(maths.weighted_mean(values, _weights(arrays, len(values))))}


def ponder_loss(arrays: Arrays, arguments: dict[str, Any]) -> Results:
    """L4."""
    a = arrays["log_p"]
    cols, losses = columns(a), columns(arrays["step_losses"])
    priors, weights = _priors(arrays["log_prior"], len(cols)), _weights(arrays, len(cols))
    made = maths.ponder_loss(cols, losses, priors, mp.mpf(arguments["beta"]), weights)
    batch = a.shape[1:]
    return {k: Array("float64", batch, tuple(x)) if isinstance(x, list) else _scalar(x) for k, x in made.items()}


def training_loss(arrays: Arrays, arguments: dict[str, Any]) -> Results:
    """M6, of a batch with one axis. What has weight 0 never enters: its losses are 0 here, as L4 would have them."""
    y_hat, targets, (steps, size) = arrays["y_hat"], arrays["targets"], arrays["log_p"].shape
    weights, width = _weights(arrays, size), len(y_hat.data) // (steps * size)
    losses = [mp.mpf(0)] * (steps * size)
    for place in (place for place in range(steps * size) if weights[place % size] != 0):
        row, target = [number(y_hat, place * width + k) for k in range(width)], number(targets, place % size)
        if arguments["criterion"] == "cross_entropy":
            losses[place] = mp.log(mp.fsum(map(mp.exp, row))) - row[target]
        else:
            losses[place] = (row[0] - target) ** 2
    return ponder_loss({**arrays, "step_losses": Array("float64", (steps, size), tuple(losses))}, arguments)


def threefry2x32(arrays: Arrays, arguments: dict[str, Any]) -> Results:
    """S1, over a batch."""
    key, counter = columns(arrays["key"]), columns(arrays["counter"])
    made = [exact.threefry2x32(tuple(k), tuple(c)) for k, c in zip(key, counter, strict=True)]
    return {"result": from_columns(made, arrays["key"].shape, "uint32")}


def halting_uniforms(arrays: Arrays, arguments: dict[str, Any]) -> Results:
    """S2, over steps and ids."""
    ids, steps = arrays["example_ids"], arguments["max_steps"]
    fields = arguments.get("draw", 0), arguments.get("domain", 0)
    made = [exact.halting_uniform(arguments["seed"], i, n, *fields) for n in range(1, steps + 1) for i in ids.data]
    return {"result": Array("float32", (steps, *ids.shape), tuple(made))}


def sample_steps(arrays: Arrays, arguments: dict[str, Any]) -> Results:
    """S3."""
    a, u = arrays["lambdas"], arrays["uniforms"]
    size = math.prod(a.shape[1:])
    lengths = _lengths(arrays, a.shape[0], size)
    made = [exact.sampled_step(a.data[i::size], u.data[i::size], lengths[i]) for i in range(size)]
    return {"result": Array("int32", a.shape[1:], tuple(made))}


def quantile_steps(arrays: Arrays, arguments: dict[str, Any]) -> Results:
    """S6."""
    a = arrays["log_p"]
    made = [exact.quantile_step(lp, mp.mpf(arguments["q"])) for lp in columns(a)]
    return {"result": Array("int32", a.shape[1:], tuple(made))}


def _act(a: Array, epsilon: float) -> list[tuple[Any, ...]]:
    size = math.prod(a.shape[1:])
    return [exact.act_row(a.data[i::size], epsilon) for i in range(size)]


def act_halting(arrays: Arrays, arguments: dict[str, Any]) -> Results:
    """A1 and A2."""
    a = arrays["lambdas"]
    rows = _act(a, arguments.get("epsilon", 0.01))
    return {
        "weights": from_columns([row[0] for row in rows], a.shape),
        "steps": Array("int32", a.shape[1:], tuple(row[1] for row in rows)),
        "remainder": Array("float64", a.shape[1:], tuple(row[2] for row in rows)),
    }


def act_cost(arrays: Arrays, arguments: dict[str, Any]) -> Results:
    """A3."""
    tau = exact.exact(arguments["tau"])
    steps, remainder = arrays["steps"], arrays["remainder"]
    made = [tau * (n + exact.exact(r)) for n, r in zip(steps.data, remainder.data, strict=True)]
    return {"result": Array("float64", steps.shape, tuple(made))}


def act_output(arrays: Arrays, arguments: dict[str, Any]) -> Results:
    """A4."""
    return _over_steps(arrays["weights"], arrays["y_hat"], exact.weighted_sum, plain=True)


def adam_update(arrays: Arrays, arguments: dict[str, Any]) -> Results:
    """O1."""
    names = ("param", "grad", "m", "v")
    shape = arrays["param"].shape
    made = [optim.adam(*(number(arrays[k], i) for k in names), **arguments) for i in range(math.prod(shape))]
    return {k: Array("float64", shape, tuple(x[j] for x in made)) for j, k in enumerate(("param", "m", "v"))}


def _matrix(a: Array) -> mp.matrix:
    rows, cols = a.shape
    return mp.matrix([[number(a, i * cols + j) for j in range(cols)] for i in range(rows)])


def _unmatrix(m: mp.matrix) -> Array:
    return Array("float64", (m.rows, m.cols), tuple(m[i, j] for i in range(m.rows) for j in range(m.cols)))


def orthogonalize(arrays: Arrays, arguments: dict[str, Any]) -> Results:
    """O2."""
    return {"result": _unmatrix(optim.orthogonalize(_matrix(arrays["matrix"]), **arguments))}


def muon_update(arrays: Arrays, arguments: dict[str, Any]) -> Results:
    """O3."""
    param, m = optim.muon(*(_matrix(arrays[k]) for k in ("param", "grad", "m")), **arguments)
    return {"param": _unmatrix(param), "m": _unmatrix(m)}


def clip_by_global_norm(arrays: Arrays, arguments: dict[str, Any]) -> Results:
    """O4."""
    values = {k: [number(a, i) for i in range(len(a.data))] for k, a in arrays.items()}
    norm = mp.sqrt(mp.fsum(x**2 for v in values.values() for x in v))
    limit = mp.mpf(arguments["max_norm"])
    made = {k: [x * limit / norm if norm > limit else x for x in v] for k, v in values.items()}
    return {k: Array("float64", arrays[k].shape, tuple(v)) for k, v in made.items()} | {"norm": _scalar(norm)}


def schedule(arrays: Arrays, arguments: dict[str, Any]) -> Results:
    """O5."""
    return {"result": _scalar(optim.schedule(**arguments))}


# Gradients.


def _confirm(value: Callable[[list[mp.mpf]], mp.mpf], at: Sequence[mp.mpf], grad: Sequence[mp.mpf]) -> None:
    """Differentiate ``value`` numerically, entry by entry; entries that are NaN must be unused and have gradient 0."""
    if mp.dps > DIGITS:  # the second computation, which checks digits only
        return
    count = len(at)
    entries = range(count) if count <= CONFIRM_ALL_UP_TO else (0, count // 2, count - 1)
    for n in entries:
        if not mp.isfinite(at[n]):
            assert grad[n] == 0
            continue
        measured = mp.diff(lambda x, n=n: value([*at[:n], x, *at[n + 1 :]]), at[n])
        assert abs(measured - grad[n]) <= CONFIRM_TOLERANCE * (1 + abs(grad[n])), (n, measured, grad[n])


def grad_ponder_loss(arrays: Arrays, arguments: dict[str, Any]) -> Results:
    """L5: gradients of the loss of log_halting and ponder_loss by logits and losses."""
    a = arrays["halt_logits"]
    logits, losses = columns(a), columns(arrays["step_losses"])
    size, remainder, beta = len(logits), arguments.get("remainder", "last"), mp.mpf(arguments["beta"])
    priors, weights, lengths = (
        _priors(arrays["log_prior"], size),
        _weights(arrays, size),
        _lengths(arrays, a.shape[0], size),
    )
    value, by_logit, by_loss = mp.mpf(0), [], []
    for z, row, prior, w, length in zip(logits, losses, priors, weights, lengths, strict=True):
        if w == 0:
            by_logit.append([mp.mpf(0)] * len(z))
            by_loss.append([mp.mpf(0)] * len(z))
            continue
        share = w / mp.fsum(weights)

        def loss(z: list[mp.mpf], row: list[mp.mpf], prior=prior, length=length, share=share) -> mp.mpf:
            log_p = maths.log_halting(z, remainder, length)
            return share * (maths.expectation(log_p, row) + beta * maths.kl(log_p, prior))

        log_p = maths.log_halting(z, remainder, length)
        costs = maths.loss_costs(log_p, row, prior, beta, length)
        by_logit.append([share * g for g in maths.grad_logits(z, costs, remainder, length)])
        by_loss.append([share * mp.exp(x) for x in log_p])
        _confirm(lambda x, row=row, loss=loss: loss(x, row), z, by_logit[-1])
        _confirm(lambda x, z=z, loss=loss: loss(z, x), row, by_loss[-1])
        value += loss(z, row)
    return {
        "value": _scalar(value),
        "halt_logits": from_columns(by_logit, a.shape),
        "step_losses": from_columns(by_loss, a.shape),
    }


def grad_expected_steps(arrays: Arrays, arguments: dict[str, Any]) -> Results:
    """H9: gradient of the mean over examples of the expected steps."""
    a = arrays["halt_logits"]
    logits, remainder = columns(a), arguments.get("remainder", "last")
    count = [mp.mpf(n) for n in range(1, a.shape[0] + 1)]
    value, made = mp.mpf(0), []
    for z, length in zip(logits, _lengths(arrays, a.shape[0], len(logits)), strict=True):

        def steps(z: list[mp.mpf], length=length) -> mp.mpf:
            return maths.expectation(maths.log_halting(z, remainder, length), count) / len(logits)

        made.append([g / len(logits) for g in maths.grad_logits(z, count, remainder, length)])
        _confirm(steps, z, made[-1])
        value += steps(z)
    return {"value": _scalar(value), "halt_logits": from_columns(made, a.shape)}


def grad_act(arrays: Arrays, arguments: dict[str, Any]) -> Results:
    """By A5: -τ and the difference of the outputs of steps n and Nᵢ, for n < Nᵢ; exact, as the value is linear."""
    a, y_hat, cotangent = arrays["lambdas"], arrays["y_hat"], arrays["cotangent"]
    steps, size = a.shape[0], math.prod(a.shape[1:])
    trailing = math.prod(cotangent.shape[len(a.shape) - 1 :])
    tau, epsilon = exact.exact(arguments["tau"]), arguments.get("epsilon", 0.01)
    value, made = 0, []
    for b, row in enumerate(_act(a, epsilon)):
        cot = cotangent.data[b * trailing : (b + 1) * trailing]
        start = [(n * size + b) * trailing for n in range(steps)]
        # What a unit of weight on step n adds; steps beyond Nᵢ may be NaN and are not looked at.
        gain = [
            exact.weighted_sum([exact.exact(c) for c in cot], y_hat.data[s : s + trailing]) for s in start[: row[1]]
        ]

        def total(lambdas: Sequence[float], gain=gain) -> Any:
            weights, count, rest = exact.act_row(lambdas, epsilon)
            return tau * (count + rest) + sum(w * g for w, g in zip(weights, gain, strict=False))

        lambdas = a.data[b::size]
        made.append([-tau + gain[n] - gain[-1] if n < row[1] - 1 else 0 for n in range(steps)])
        for n in range(steps):  # piecewise linear: a small step that does not change Nᵢ gives the slope exactly
            if not math.isnan(lambdas[n]):
                moved = [*lambdas[:n], lambdas[n] - 2.0**-20, *lambdas[n + 1 :]]
                assert exact.act_row(moved, epsilon)[1] == row[1], "too near a jump of the steps"
                assert (total(moved) - total(lambdas)) == made[-1][n] * (
                    exact.exact(moved[n]) - exact.exact(lambdas[n])
                )
        value += total(lambdas)
    return {"value": _scalar(value), "lambdas": from_columns(made, a.shape)}


EVALUATE: dict[str, Callable[[Arrays, dict[str, Any]], Results]] = {
    rule.__name__: rule
    for rule in (
        log_halting,
        log_halting_from_lambdas,
        halting_lengths,
        expected_steps,
        expected_prediction,
        geometric_log_prior,
        uniform_log_prior,
        poisson_log_prior,
        expected_loss,
        kl_divergence,
        weighted_mean,
        ponder_loss,
        training_loss,
        threefry2x32,
        halting_uniforms,
        sample_steps,
        quantile_steps,
        act_halting,
        act_cost,
        act_output,
        adam_update,
        orthogonalize,
        muon_update,
        clip_by_global_norm,
        schedule,
        grad_ponder_loss,
        grad_expected_steps,
        grad_act,
    )
}
