"""Counter-based uniforms, sampled steps and the quantile exit (spec S1 to S6; paper §2.5)."""

import numpy as np

from ponder_ref import checks
from ponder_ref.halting import _length_array, as_float, step_numbers

MASK = 0xFFFFFFFF
PARITY = 0x1BD11BDA
ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))


def threefry2x32(key, counter) -> tuple[np.ndarray, np.ndarray]:
    """Threefry-2x32 with 20 rounds (S1): two pairs of 32-bit words to a pair of 32-bit words.

    >>> [hex(int(word)) for word in threefry2x32((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3))]
    ['0xc4923a9c', '0x483df7a0']
    """
    k0, k1, x0, x1 = ((np.asarray(word).astype(np.uint64) & MASK).astype(np.uint32) for word in (*key, *counter))
    schedule = (k0, k1, k0 ^ k1 ^ np.uint32(PARITY))
    with np.errstate(over="ignore"):  # sums are meant modulo 2³², as uint32 has them
        x0, x1 = x0 + k0, x1 + k1
        for group in range(5):
            for rotation in ROTATIONS[group % 2]:
                x0 = x0 + x1
                x1 = (x1 << np.uint32(rotation)) | (x1 >> np.uint32(32 - rotation))
                x1 = x1 ^ x0
            x0 = x0 + schedule[(group + 1) % 3]
            x1 = x1 + schedule[(group + 2) % 3] + np.uint32(group + 1)
    return np.asarray(x0), np.asarray(x1)


def check_counter(seed: int, example_ids, max_steps: int, draw: int, domain: int) -> None:
    """The ranges of S2."""
    checks.check_count("seed", seed, 0, 2**64 - 1)
    checks.check_integer("example_ids", example_ids)
    checks.check_batch("example_ids", tuple(example_ids.shape))
    checks.check_count("max_steps", max_steps, 1, 2**16 - 1)
    checks.check_count("draw", draw, 0, 2**12 - 1)
    checks.check_count("domain", domain, 0, 15)


def uniforms_at(seed: int, example_ids, steps, *, draw: int = 0, domain: int = 0) -> np.ndarray:
    """The uniforms of some example ids at some steps, arrays that are broadcast to each other; float32 (S2)."""
    ids = np.asarray(example_ids).astype(np.int64) & MASK
    fields = (domain << 28) + (draw << 16) + np.asarray(steps)
    word, _ = threefry2x32((seed & MASK, seed >> 32), np.broadcast_arrays(ids, fields))
    return (word >> 8).astype(np.float32) * np.float32(2**-24)


def halting_uniforms(seed: int, example_ids, *, max_steps: int, draw: int = 0, domain: int = 0) -> np.ndarray:
    """Uniforms in [0, 1) for each step and example, `[max_steps, ...ids]`, float32 (S2).

    key = (seed mod 2³², seed div 2³²), counter = (id mod 2³², domain·2²⁸ + draw·2¹⁶ + n), u = (word >> 8)·2⁻²⁴.
    """
    check_counter(seed, example_ids, max_steps, draw, domain)
    ids = np.asarray(example_ids)[None]
    steps = np.arange(1, max_steps + 1).reshape(-1, *[1] * (ids.ndim - 1))
    return uniforms_at(seed, ids, steps, draw=draw, domain=domain)


def sample_steps(lambdas, uniforms, *, lengths=None) -> np.ndarray:
    """The first n with uₙ < λₙ, forced at Nᵢ; integers `[...batch]` (S3; paper §2.5).

    >>> int(sample_steps(np.array([0.2, 0.5, 0.1]), np.array([0.7, 0.4, 0.9])))
    2
    """
    checks.check_steps_first("lambdas", lambdas)
    checks.check_like("uniforms", uniforms, lambdas, "lambdas")
    lam = np.real(as_float(lambdas))
    n = step_numbers(lam)
    halts = (np.asarray(uniforms) < lam) | (n >= _length_array(lengths, lam))
    return np.where(halts, n, lam.shape[0]).min(axis=0)


def draw_steps(lambdas, seed: int, example_ids, *, draw: int = 0, lengths=None) -> np.ndarray:
    """Steps sampled with the uniforms that (seed, example id, draw) name (S4, S5).

    lambdas: `[N, ...batch]`; example_ids: `[...batch]` integers, an example's own wherever it stands.
    """
    checks.check_steps_first("lambdas", lambdas)
    checks.check_integer("example_ids", example_ids)
    checks.check_shape("example_ids", example_ids, lambdas.shape[1:], "the batch")
    uniforms = halting_uniforms(seed, example_ids, max_steps=lambdas.shape[0], draw=draw)
    return sample_steps(lambdas, uniforms, lengths=lengths)


def quantile_steps(log_p, *, q: float) -> np.ndarray:
    """The first n with Σ_{j≤n} pⱼ ≥ q; integers `[...batch]` (S6).

    >>> int(quantile_steps(np.log([0.5, 0.3, 0.2]), q=0.6))
    2
    """
    checks.check_steps_first("log_p", log_p)
    checks.check_number("q", q, "(0, 1]")
    log_p = np.real(as_float(log_p))
    n = step_numbers(log_p)
    last = np.where(log_p > -np.inf, n, 1).max(axis=0)  # where rounding leaves the sum below q
    return np.where(np.cumsum(np.exp(log_p), axis=0) >= q, n, last).min(axis=0)
