"""The optimisers of spec/annex/optim.md in mpmath. Scalars such as 0.9 and 3.4445 mean their exact binary64 value."""

from fractions import Fraction

from mpmath import mp

NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)


def adam(
    param: mp.mpf,
    grad: mp.mpf,
    m: mp.mpf,
    v: mp.mpf,
    *,
    step: int,
    learning_rate: float,
    beta1: float = 0.9,
    beta2: float = 0.999,
    eps: float = 1e-8,
    weight_decay: float = 0.0,
) -> tuple[mp.mpf, mp.mpf, mp.mpf]:
    """O1 for one entry: param, m, v."""
    b1, b2 = mp.mpf(beta1), mp.mpf(beta2)
    m = b1 * m + (1 - b1) * grad
    v = b2 * v + (1 - b2) * grad**2
    m_hat, v_hat = m / (1 - b1**step), v / (1 - b2**step)
    move = m_hat / (mp.sqrt(v_hat) + mp.mpf(eps)) + mp.mpf(weight_decay) * param
    return param - mp.mpf(learning_rate) * move, m, v


def orthogonalize(matrix: mp.matrix, ns_steps: int = 5) -> mp.matrix:
    """O2."""
    a, b, c = (mp.mpf(x) for x in NEWTON_SCHULZ)
    norm = mp.sqrt(mp.fsum(x**2 for x in matrix))
    x = matrix / (norm + mp.mpf(1e-8))
    is_tall = matrix.rows > matrix.cols
    x = x.T if is_tall else x
    for _ in range(ns_steps):
        gram = x * x.T
        x = a * x + (b * gram + c * (gram * gram)) * x
    return x.T if is_tall else x


def muon(
    param: mp.matrix,
    grad: mp.matrix,
    m: mp.matrix,
    *,
    step: int,
    learning_rate: float,
    beta: float = 0.95,
    nesterov: bool = True,
    weight_decay: float = 0.0,
    ns_steps: int = 5,
) -> tuple[mp.matrix, mp.matrix]:
    """O3: param, m."""
    b = mp.mpf(beta)
    m = b * m + (1 - b) * grad
    if nesterov:
        direction = b * m / (1 - b ** (step + 1)) + (1 - b) * grad / (1 - b**step)
    else:
        direction = m / (1 - b**step)
    scale = mp.sqrt(max(mp.mpf(1), mp.mpf(param.cols) / param.rows))
    move = scale * orthogonalize(direction, ns_steps) + mp.mpf(weight_decay) * param
    return param - mp.mpf(learning_rate) * move, m


def schedule(
    update: int,
    *,
    learning_rate: float,
    total: int,
    warmup: int = 0,
    decay: str = "constant",
    end: float = 0.0,
    power: float = 1.0,
) -> mp.mpf:
    """O5."""
    rate, last = mp.mpf(learning_rate), mp.mpf(end)
    if update <= warmup:
        return rate * update / warmup
    if decay == "constant":
        return rate
    done = min(Fraction(1), Fraction(update - 1 - warmup, total - warmup))
    left = mp.mpf((1 - done).numerator) / (1 - done).denominator
    if decay == "cosine":
        share = (1 + mp.cospi(1 - left)) / 2 if left else mp.mpf(0)
    else:
        share = left if decay == "linear" else left ** mp.mpf(power)
    return last + (rate - last) * share
