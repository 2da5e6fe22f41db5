"""Halting, priors and losses of the specification, for one example at a time, in mpmath.

Every function takes lists of mpf over the steps of one example. Sums that cancel are rearranged so that the result
keeps its relative precision; ``make_vectors.py`` computes all again with more digits and refuses one that changes.
"""

from collections.abc import Sequence

from mpmath import mp

Row = list[mp.mpf]
INF = mp.inf
NAN = mp.nan


def log_sigmoid(z: mp.mpf) -> mp.mpf:
    """log σ(z), also at ±inf and NaN."""
    if mp.isnan(z):
        return NAN
    if mp.isinf(z):
        return mp.mpf(0) if z > 0 else -INF
    return -mp.log1p(mp.exp(-z)) if z >= 0 else z - mp.log1p(mp.exp(z))


def log_share(x: mp.mpf) -> mp.mpf:
    """log x for x in [0, 1], log 0 being -inf."""
    return NAN if mp.isnan(x) else mp.log(x) if x > 0 else -INF


def _distribution(stop: Row, stay: Row, remainder: str, length: int) -> Row:
    """H1 to H4 from log λ and log(1-λ)."""
    log_p: Row = []
    survival = mp.mpf(0)
    for n in range(length):
        is_forced = remainder == "last" and n == length - 1
        log_p.append(survival if is_forced else stop[n] + survival)
        survival = survival + stay[n]
    if remainder == "normalize":
        log_p = _normalized(log_p)
    return log_p + [-INF] * (len(stop) - length)


def _normalized(log_p: Row) -> Row:
    if any(mp.isnan(x) for x in log_p):
        return [NAN] * len(log_p)
    top = max(log_p)
    if top == -INF:  # every λ is exactly 0: uniform by definition (H3)
        return [-mp.log(len(log_p))] * len(log_p)
    at = log_p.index(top)
    # log1p of the others keeps a normaliser of 1 + tiny exact to full relative precision.
    others = mp.fsum(mp.exp(x - top) for i, x in enumerate(log_p) if i != at)
    return [(x - top) - mp.log1p(others) for x in log_p]


def log_halting(z: Row, remainder: str, length: int) -> Row:
    """log p from logits."""
    return _distribution([log_sigmoid(x) for x in z], [log_sigmoid(-x) for x in z], remainder, length)


def log_halting_from_lambdas(lambdas: Row, remainder: str, length: int) -> Row:
    """log p from λ."""
    return _distribution([log_share(x) for x in lambdas], [log_share(1 - x) for x in lambdas], remainder, length)


def halting_length(z: Row, epsilon: mp.mpf, min_steps: int) -> int:
    """H6. A tie is decided exactly: the survival is compared as a product, where log rounding has no say."""
    survival = mp.mpf(1)
    for n, x in enumerate(z, start=1):
        survival *= NAN if mp.isnan(x) else mp.exp(log_sigmoid(-x)) if x != 0 else mp.mpf(1) / 2
        if n >= min_steps and survival < epsilon:
            return n
    return len(z)


def expectation(log_p: Row, values: Sequence[mp.mpf]) -> mp.mpf:
    """Σ p·value, where a step of log p = -inf is left out whatever its value is (H7, H8, L1)."""
    return sum((mp.exp(lp) * v for lp, v in zip(log_p, values, strict=True) if lp != -INF), mp.mpf(0))


def kl(log_p: Row, log_prior: Row) -> mp.mpf:
    """L2, special cases in the order of the specification."""
    total = mp.mpf(0)
    for lp, lq in zip(log_p, log_prior, strict=True):
        if lp == -INF:
            continue
        total += INF if lq == -INF and not mp.isnan(lp) else mp.exp(lp) * (lp - lq)
    return total


def geometric_log_prior(lambda_p: mp.mpf, steps: int, remainder: str) -> Row:
    """P1 and P2."""
    if steps == 1:  # exactly 0; the difference of two logarithms would leave the last digit
        return [mp.mpf(0)]
    if lambda_p == 1:
        return [mp.mpf(0)] + [-INF] * (steps - 1)
    stay = mp.log1p(-lambda_p)
    log_q = [mp.log(lambda_p) + n * stay for n in range(steps)]
    if remainder == "last":
        return [*log_q[:-1], (steps - 1) * stay]
    log_z = mp.log(-mp.expm1(steps * stay))
    return [x - log_z for x in log_q]


def poisson_log_prior(rate: mp.mpf, steps: int, remainder: str) -> Row:
    """P4. The tail is summed term by term, and confirmed by the incomplete gamma function."""
    if steps == 1:
        return [mp.mpf(0)]
    log_q = [-rate + k * mp.log(rate) - mp.loggamma(k + 1) for k in range(steps)]
    if remainder == "normalize":
        log_z = mp.log(mp.fsum(mp.exp(x) for x in log_q))
        return [x - log_z for x in log_q]
    term, k = mp.exp(log_q[-1]), steps - 1
    tail = term
    while k <= rate or term > tail * mp.eps * mp.mpf("1e-10"):
        k += 1
        term *= rate / k
        tail += term
    assert mp.almosteq(tail, mp.gammainc(steps - 1, 0, rate, regularized=True), rel_eps=mp.mpf("1e-50"))
    return [*log_q[:-1], mp.log(tail)]


def ponder_loss(
    log_p: list[Row], losses: list[Row], log_prior: list[Row], beta: mp.mpf, weights: Row
) -> dict[str, mp.mpf | list[mp.mpf]]:
    """L3 and L4 over the examples of a batch."""
    rec = [expectation(lp, row) if w else mp.mpf(0) for lp, row, w in zip(log_p, losses, weights, strict=True)]
    reg = [kl(lp, lq) if w else mp.mpf(0) for lp, lq, w in zip(log_p, log_prior, weights, strict=True)]
    loss_rec, loss_reg = weighted_mean(rec, weights), weighted_mean(reg, weights)
    loss = loss_rec + beta * loss_reg
    return {"loss": loss, "loss_rec": loss_rec, "loss_reg": loss_reg, "example_rec": rec, "example_reg": reg}


def weighted_mean(values: Row, weights: Row) -> mp.mpf:
    """L3."""
    return sum((w * v for v, w in zip(values, weights, strict=True) if w != 0), mp.mpf(0)) / mp.fsum(weights)


# Gradients, by the formulas of L5.


def grad_logits(z: Row, costs: Row, remainder: str, length: int) -> Row:
    """∂/∂z by L5, the costs being its c."""
    p = [mp.exp(x) for x in log_halting(z, remainder, length)[:length]]
    costs = list(costs[:length])
    used = length - 1 if remainder == "last" else length
    # "normalize" has c - Σ p·c for c; under "last" a constant taken from c changes nothing. Counted from the cost of
    # the likeliest step, nothing cancels where one p is all but 1, and a constant cost gives exactly 0.
    base = costs[p.index(max(p))]
    mean = mp.fsum(q * (c - base) for q, c in zip(p, costs, strict=True))
    costs = [(c - base) - mean for c in costs]
    flow = [q * c for q, c in zip(p, costs, strict=True)]
    grad = [mp.mpf(0)] * len(z)
    suffix = mp.mpf(0)
    for n in reversed(range(length)):
        if n < used:
            grad[n] = mp.exp(log_sigmoid(-z[n])) * flow[n] - mp.exp(log_sigmoid(z[n])) * suffix
        suffix += flow[n]
    return grad


def loss_costs(log_p: Row, losses: Row, log_prior: Row, beta: mp.mpf, length: int) -> Row:
    """c of L5 over the steps up to the length."""
    return [losses[n] + beta * (log_p[n] - log_prior[n]) for n in range(length)]
