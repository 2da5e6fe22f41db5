"""Draws docs/figures/halting.png: `python docs/make_figures.py` (needs matplotlib and torch).

Left: the halting distribution for constant λ, in both remainder rules, beside the geometric prior.
Right: the gradient of the KL in float32, computed through probabilities and through logarithms.
"""

import argparse
import sys
from pathlib import Path

import numpy as np

import ponder_ref

OUT = Path(__file__).resolve().parent / "figures" / "halting.png"
STEPS = 10
LAMBDAS = ((0.1, "#0072b2"), (0.3, "#d55e00"), (0.6, "#009e73"))  # colours that the colour-blind can tell apart
LAMBDA_P = 0.2
LIMIT = 40


def draw_distribution(axis) -> None:
    """pₙ for N = 10: filled marks "last", open marks "normalize", grey bars the prior."""
    n = np.arange(1, STEPS + 1)
    prior = np.exp(ponder_ref.geometric_log_prior(LAMBDA_P, STEPS, dtype="float64"))
    axis.bar(n, prior, width=0.8, color="0.88", label=rf"geometric prior, $\lambda_p$ = {LAMBDA_P}")
    for lam, colour in LAMBDAS:
        z = np.full(STEPS, np.log(lam) - np.log1p(-lam))
        for remainder, line, face, size in (("normalize", "--", "white", 8), ("last", "-", colour, 4)):
            p = np.exp(ponder_ref.log_halting(z, remainder=remainder))
            label = rf'$\lambda$ = {lam}, "{remainder}"'
            axis.plot(n, p, line, marker="o", ms=size, lw=1.4, color=colour, mfc=face, label=label)
    axis.set(title=f"Halting distribution, N = {STEPS}", xlabel="step n", ylabel=r"$p_n$", xticks=n, ylim=(0, 0.72))
    axis.legend(loc="upper right", frameon=False, fontsize=9)


def naive_gradient(z, log_prior):
    """∂KL/∂z₁ as it is often written: λ, products of 1 − λ, and the logarithm at the end."""
    import torch

    z = z.clone().requires_grad_()
    lam = torch.sigmoid(z)
    reached = torch.cumprod(torch.cat([torch.ones_like(lam[:1]), 1 - lam[:-1]]), 0)
    p = torch.cat([(reached * lam)[:-1], reached[-1:]])
    kl = (p * (p.log() - log_prior[:, None])).sum(0)
    return torch.autograd.grad(kl.sum(), z)[0][0].numpy()


def log_space_gradient(z, log_prior):
    """The same by ponder_torch."""
    import torch

    import ponder_torch

    z = z.clone().requires_grad_()
    kl = ponder_torch.kl_divergence(ponder_torch.log_halting(z), log_prior)
    return torch.autograd.grad(kl.sum(), z)[0][0].numpy()


def draw_gradients(axis) -> None:
    """∂KL/∂z₁ over z₁ = −40..40 for N = 3 in float32; the ground is shaded where the naive one is NaN."""
    import torch

    grid = np.linspace(-LIMIT, LIMIT, 1601, dtype=np.float32)
    z = torch.from_numpy(np.stack([grid, np.zeros_like(grid), np.zeros_like(grid)]))
    log_prior = torch.from_numpy(ponder_ref.geometric_log_prior(LAMBDA_P, 3, dtype="float32"))
    naive, ours = naive_gradient(z, log_prior), log_space_gradient(z, log_prior)
    bad = ~np.isfinite(naive)
    if not bad.any() or not np.isfinite(ours).all():
        raise RuntimeError("the picture would not show what its caption says")
    spans = np.flatnonzero(np.diff(np.concatenate([[False], bad, [False]]).astype(int))).reshape(-1, 2)
    for k, (start, stop) in enumerate(spans):
        label = rf"probabilities: NaN for $z_1 \geq$ {grid[bad].min():.1f}" if k == 0 else None
        axis.axvspan(grid[start], grid[stop - 1], color="#d55e00", alpha=0.18, lw=0, label=label)
    axis.plot(grid, np.abs(ours), color="#0072b2", lw=2.4, label="logarithms (ponder_torch): finite throughout")
    axis.plot(grid, np.abs(naive), color="#d55e00", lw=1.4, ls="--", label="probabilities, where finite")
    axis.set(title="Gradient of the KL in float32, N = 3", xlim=(-LIMIT, LIMIT), ylim=(1e-18, 1e5), yscale="log")
    axis.set(xlabel=r"logit $z_1$", ylabel=r"$|\partial\,\mathrm{KL}\,/\,\partial z_1|$")
    axis.legend(loc="upper left", frameon=False, fontsize=9)


def main() -> int:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    try:
        import matplotlib

        import ponder_torch  # noqa: F401
    except ModuleNotFoundError as error:
        print(
            f"the figures need {error.name!r}, which is not installed: "
            "pip install -e '.[torch,tasks]' in a clone installs it",
            file=sys.stderr,
        )
        return 2
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    plt.rcParams.update({"font.size": 11, "axes.spines.top": False, "axes.spines.right": False})
    figure, (left, right) = plt.subplots(1, 2, figsize=(12, 4.8), dpi=110, layout="constrained")
    draw_distribution(left)
    draw_gradients(right)
    OUT.parent.mkdir(exist_ok=True)
    figure.savefig(OUT, metadata={"Software": None})
    print(f"wrote {OUT.relative_to(OUT.parent.parent.parent)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
