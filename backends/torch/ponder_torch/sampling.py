"""Counter-based uniforms, sampled steps and the quantile exit (spec S1 to S6; paper §2.5)."""

import math

import torch

from ponder_ref import checks
from ponder_ref.sampling import MASK, PARITY, ROTATIONS, check_counter
from ponder_torch.arrays import as_float, length_array, step_numbers


def _rounds(k0, k1, x0, x1) -> tuple[torch.Tensor, torch.Tensor]:
    """The block function on 32-bit words held in int64."""
    schedule = (k0, k1, k0 ^ k1 ^ PARITY)
    x0, x1 = (x0 + k0) & MASK, (x1 + k1) & MASK
    for group in range(5):
        for rotation in ROTATIONS[group % 2]:
            x0 = (x0 + x1) & MASK
            x1 = ((x1 << rotation) | (x1 >> (32 - rotation))) & MASK
            x1 = x1 ^ x0
        x0 = (x0 + schedule[(group + 1) % 3]) & MASK
        x1 = (x1 + schedule[(group + 2) % 3] + (group + 1)) & MASK
    return x0, x1


# Inductor writes out every use of an intermediate, and each round uses both words twice: 2^20 terms, minutes or hours
# to compile. So a compiler sees the rounds as one operation.
@torch.library.custom_op("pondernet::threefry2x32", mutates_args=())
def _opaque_rounds(
    k0: torch.Tensor, k1: torch.Tensor, x0: torch.Tensor, x1: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    return _rounds(k0, k1, x0, x1)


@_opaque_rounds.register_fake
def _(k0, k1, x0, x1):
    return torch.empty_like(x0), torch.empty_like(x1)


@_opaque_rounds.register_vmap
def _(info, in_dims, *words):
    # The rounds act on each entry alone: bring the mapped axis to the front of every word, whether it has one or not.
    pairs = zip(words, in_dims, strict=True)
    aligned = [word[None] if dim is None else word.movedim(dim, 0) for word, dim in pairs]
    return _opaque_rounds(*[word.clone() for word in torch.broadcast_tensors(*aligned)]), (0, 0)


def threefry2x32(key, counter) -> tuple[torch.Tensor, torch.Tensor]:
    """Threefry-2x32 with 20 rounds (S1): two pairs of 32-bit words, held in int64, to a pair of 32-bit words."""
    device = next((word.device for word in (*key, *counter) if isinstance(word, torch.Tensor)), None)
    words = [torch.as_tensor(word, dtype=torch.int64, device=device) for word in (*key, *counter)]
    if torch.compiler.is_compiling() and not torch.compiler.is_exporting():
        return _opaque_rounds(*[word.clone() for word in torch.broadcast_tensors(*words)])
    return _rounds(*words)


def halting_uniforms(
    seed: int, example_ids: torch.Tensor, *, max_steps: int, draw: int = 0, domain: int = 0
) -> torch.Tensor:
    """Uniforms in [0, 1) for each step and example, `[max_steps, ...ids]`, float32 (S2).

    key = (seed mod 2³², seed div 2³²), counter = (id mod 2³², domain·2²⁸ + draw·2¹⁶ + n), u = (word >> 8)·2⁻²⁴.
    """
    check_counter(seed, example_ids, max_steps, draw, domain)
    ids = torch.as_tensor(example_ids).to(torch.int64)[None] & MASK
    steps = torch.arange(1, max_steps + 1, device=ids.device).reshape(-1, *[1] * (ids.ndim - 1))
    word, _ = threefry2x32((seed & MASK, seed >> 32), (ids, (domain << 28) + (draw << 16) + steps))
    return (word >> 8).to(torch.float32) * 2**-24


def sample_steps(lambdas: torch.Tensor, uniforms: torch.Tensor, *, lengths: torch.Tensor | None = None) -> torch.Tensor:
    """The first n with uₙ < λₙ, forced at Nᵢ; integers `[...batch]` (S3; paper §2.5)."""
    checks.check_steps_first("lambdas", lambdas)
    checks.check_like("uniforms", uniforms, lambdas, "lambdas")
    lam, uniforms = as_float(lambdas, uniforms)
    n = step_numbers(lam)
    halts = (uniforms < lam) | (n >= length_array(lengths, lam))
    return torch.where(halts, n, lam.shape[0]).amin(0)


def draw_steps(
    lambdas: torch.Tensor, seed: int, example_ids: torch.Tensor, *, draw: int = 0, lengths: torch.Tensor | None = None
) -> torch.Tensor:
    """Steps sampled with the uniforms that (seed, example id, draw) name (S4, S5).

    lambdas: `[N, ...batch]`; example_ids: `[...batch]` integers, an example's own wherever it stands.
    """
    checks.check_steps_first("lambdas", lambdas)
    checks.check_integer("example_ids", example_ids)
    checks.check_shape("example_ids", example_ids, tuple(lambdas.shape[1:]), "the batch")
    uniforms = halting_uniforms(seed, example_ids, max_steps=lambdas.shape[0], draw=draw)
    return sample_steps(lambdas, uniforms, lengths=lengths)


def quantile_steps(log_p: torch.Tensor, *, q: float) -> torch.Tensor:
    """The first n with Σ_{j≤n} pⱼ ≥ q; integers `[...batch]` (S6)."""
    checks.check_steps_first("log_p", log_p)
    checks.check_number("q", q, "(0, 1]")
    (log_p,) = as_float(log_p.detach())
    n = step_numbers(log_p)
    last = torch.where(log_p > -math.inf, n, 1).amax(0)  # where rounding leaves the sum below q
    return torch.where(torch.cumsum(torch.exp(log_p), 0) >= q, n, last).amin(0)
