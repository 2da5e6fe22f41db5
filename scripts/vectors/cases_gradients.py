"""Golden cases of the gradients of H9 and L5; those of A5 are in vector_cases_act.py."""

from math import inf, nan

from mpmath import mp

from scripts.vectors.cases_priors import prior, zero_lambdas
from scripts.vectors.format import Book, f32, floats, ints, logit

RULES = ("last", "normalize")
# [5, 6]: the saturations of H10, alone and mixed, one column for each example.
SATURATED = [
    [17.0, -20.0, 40.0, -89.0, 1e4, -1e4],
    [-17.0, 20.0, -40.0, 89.0, -1e4, -1e4],
    [20.0, -20.0, 0.5, -89.0, 0.5, -1e4],
    [0.5, 0.25, -40.0, 0.5, 1e4, -1e4],
    [-1.0, 40.0, 0.0, 0.0, -0.5, -1e4],
]
LOSSES = [
    [3.0, 1.0, 0.5, 4.0, 2.0, 1.0],
    [1.0, 2.0, 0.25, 1.0, 5.0, 3.0],
    [2.0, 0.5, 1.0, 0.0, 1.0, 0.5],
    [0.5, 4.0, 2.0, 3.0, 0.25, 8.0],
    [1.5] * 6,
]


def _ponder() -> Book:
    book = Book("grad_ponder_loss", ["H9", "L5"], "§2.4, eq. 3")
    add = book.add
    f1, losses = floats([logit("3/10")] * 4), floats([4.0, 2.0, 1.0, 0.5])
    for rule in RULES:
        chosen = {"remainder": rule}
        end = "exactly 0 at N" if rule == "last" else "not 0 at N"
        base = {"halt_logits": f1, "step_losses": losses, "log_prior": floats(prior(0.2, 4))}
        for beta in (0.0, 0.01, 2.0):
            add(f"f1-{rule}-beta-{beta:g}", f"F1, β = {beta:g}: {end}.", base, {**chosen, "beta": beta})
        single = {"halt_logits": floats([[2.0, -1e4]]), "step_losses": floats([[3.0, 5.0]]), "log_prior": floats([0.0])}
        add(
            f"one-step-{rule}",
            "N = 1: no gradient in the logit, 1/2 in each loss.",
            single,
            {**chosen, "beta": 1.0},
            value=[4],
            halt_logits=[0, 0],
            step_losses=[0.5, 0.5],
        )
        even = {
            "halt_logits": floats([0.0, 0.0, 0.0]),
            "step_losses": floats([4.0, 2.0, 0.0]),
            "log_prior": floats(prior(0.5, 3)),
        }
        stated = [0.75, 0.25, 0] if rule == "last" else [0.6530612, 0.0816327, -0.2040816]
        add(f"even-odds-{rule}", "λ = ½, β = 0: by hand from L5.", even, {**chosen, "beta": 0.0}, halt_logits=stated)
        flat = {
            "halt_logits": floats([[0.5, -1.0], [2.0, 0.25], [-1.5, 1.0]]),
            "step_losses": floats([[2.5, 1.0]] * 3),
            "log_prior": floats(prior(0.5, 3)),
        }
        add(
            f"constant-loss-{rule}",
            "A constant loss, β = 0: no gradient in the logits.",
            flat,
            {**chosen, "beta": 0.0},
            halt_logits=[0] * 6,
        )
        deep = {"halt_logits": floats(SATURATED), "step_losses": floats(LOSSES), "log_prior": floats(prior(0.2, 5))}
        add(
            f"saturated-{rule}",
            "Logits of ±17, ±20, ±40, ±89 and ±1e4: finite, and right where 1 - σ(z) would be 0.",
            deep,
            {**chosen, "beta": 0.01},
            spec=["H9", "H10", "L5"],
        )
        cut = {
            "halt_logits": floats([[0.5, -1.0, 0.75], [-0.25, 2.0, nan], [nan, 0.75, nan], [inf, 1.5, nan]]),
            "step_losses": floats([[2.0, 1.0, 3.0], [1.0, 0.5, nan], [nan, 4.0, inf], [inf, 2.0, -inf]]),
            "log_prior": floats(prior(0.2, 4)),
            "lengths": ints([2, 4, 1]),
        }
        add(
            f"cut-{rule}",
            "NaN and inf beyond Nᵢ = 2, 4, 1: gradient exactly 0 there.",
            cut,
            {**chosen, "beta": 0.5},
            spec=["H4", "H9", "L5"],
        )
        alone = {
            "halt_logits": floats([0.5, -0.25]),
            "step_losses": floats([2.0, 1.0]),
            "log_prior": floats(prior(0.2, 4)[:2]),
        }
        add(
            f"cut-alone-{rule}",
            "The first example of cut alone: three times its gradient; the prior is still that over 4 steps.",
            alone,
            {**chosen, "beta": 0.5},
            spec=["H4", "L5"],
        )
        rows = {
            "halt_logits": floats([[0.5, nan, -1.0], [1.0, nan, 0.25], [-0.5, inf, 2.0]]),
            "step_losses": floats([[1.0, nan, 2.0], [3.0, inf, 0.5], [2.0, nan, 1.0]]),
            "log_prior": floats(prior(0.5, 3)),
            "weights": floats([3.0, 0.0, 1.0]),
        }
        add(
            f"zero-weight-nan-{rule}",
            "A row of weight 0 has gradient exactly 0, though NaN; the others have shares of ¾ and ¼.",
            rows,
            {**chosen, "beta": 0.25},
            spec=["L3", "L5"],
        )
        low = {"halt_logits": floats([-1e4] * 4), "step_losses": losses, "log_prior": floats(prior(0.2, 4))}
        add(f"all-minus-1e4-{rule}", "No step wants to halt.", low, {**chosen, "beta": 0.01}, spec=["H9", "H10", "L5"])
        high = {"halt_logits": floats([1e4] * 4), "step_losses": losses, "log_prior": floats(prior(0.2, 4))}
        add(
            f"all-plus-1e4-{rule}",
            "Every step wants to halt.",
            high,
            {**chosen, "beta": 0.01},
            spec=["H9", "H10", "L5"],
            halt_logits=[0] * 4,
        )
        grid = {
            "halt_logits": floats([[[0.5, -1.0], [2.0, 0.0]], [[1.5, 0.25], [-0.5, nan]], [[0.0, nan], [1.0, nan]]]),
            "step_losses": floats([[[1.0, 2.0], [3.0, 4.0]], [[0.5, 1.5], [2.0, nan]], [[4.0, nan], [1.0, inf]]]),
            "log_prior": floats(prior(0.5, 3)),
            "lengths": ints([[3, 2], [3, 1]]),
            "weights": floats([[1.0, 2.0], [0.5, 0.5]]),
        }
        add(
            f"batch-2d-{rule}",
            "A batch of two axes, with lengths and weights.",
            grid,
            {**chosen, "beta": 0.1},
            spec=["H4", "L3", "L5"],
        )
    pair = {
        "halt_logits": floats([[2.0, -2.0], [0.0, 0.0]]),
        "step_losses": floats([[0.0, 1.0], [1.0, 0.0]]),
        "log_prior": floats(prior(0.5, 2)),
    }
    add(
        "opposite-pair",
        "F3: the gradients are opposite; with means taken before weighting they would vanish.",
        pair,
        {"remainder": "last", "beta": 0.0},
        halt_logits=[-0.0524968, 0.0524968, 0, 0],
    )
    unused = {
        "halt_logits": floats([0.5, 1.0, nan]),
        "step_losses": floats([1.0, 2.0, 3.0]),
        "log_prior": floats(prior(0.2, 3)),
    }
    add(
        "unused-nan-last",
        "λ_N is unused: its gradient is exactly 0 and the others are finite, though it is NaN.",
        unused,
        {"remainder": "last", "beta": 0.01},
    )
    each = {
        "halt_logits": floats([[0.5, -1.0], [1.0, 2.0]]),
        "step_losses": floats([[1.0, 2.0], [3.0, 4.0]]),
        "log_prior": floats([[prior(0.5, 2)[n], prior(0.2, 2)[n]] for n in range(2)]),
    }
    add("prior-per-example", "A prior [N, B].", each, {"remainder": "last", "beta": 1.0})
    at_zero = [f32(mp.log(x / (1 - x))) for x in zero_lambdas(5)[:-1]] + [0.0]
    rest = {"halt_logits": floats(at_zero), "step_losses": floats([0.0] * 5), "log_prior": floats(prior(0.2, 5))}
    add(
        "zero-point",
        "λₙ = λ_p/(1-(1-λ_p)^(N-n+1)): the KL and its gradient are 0 up to the rounded inputs.",
        rest,
        {"remainder": "last", "beta": 1.0},
        spec=["P1", "L2", "L5"],
    )
    away = {
        "halt_logits": floats([logit("1/5")] * 5),
        "step_losses": floats([0.0] * 5),
        "log_prior": floats(prior(0.2, 5)),
    }
    add(
        "not-the-zero-point",
        "λ = λ_p throughout is not where the KL to the normalised prior is 0.",
        away,
        {"remainder": "last", "beta": 1.0},
        spec=["P1", "L2", "L5"],
    )
    return book


def _steps() -> Book:
    book = Book("grad_expected_steps", ["H7", "H9"], "app. A")
    add = book.add
    for rule in RULES:
        chosen = {"remainder": rule}
        add(f"f1-{rule}", "F1.", {"halt_logits": floats([logit("3/10")] * 4)}, chosen)
        stated = [-0.375, -0.125, 0] if rule == "last" else [-0.3265306, -0.0408163, 0.1020408]
        add(
            f"even-odds-{rule}",
            "λ = ½: by hand from H9.",
            {"halt_logits": floats([0.0, 0.0, 0.0])},
            chosen,
            halt_logits=stated,
        )
        add(
            f"one-step-{rule}",
            "N = 1: no gradient.",
            {"halt_logits": floats([[0.5, -1e4, 1e4]])},
            chosen,
            value=[1],
            halt_logits=[0] * 3,
        )
        add(
            f"saturated-{rule}",
            "Logits of ±17, ±20, ±40, ±89 and ±1e4, mixed; the mean is over 6 examples.",
            {"halt_logits": floats(SATURATED)},
            chosen,
            spec=["H7", "H9", "H10"],
        )
        cut = {
            "halt_logits": floats([[0.5, -1.0, 2.0], [-0.25, 2.0, nan], [nan, 0.75, nan], [-inf, 1.5, nan]]),
            "lengths": ints([2, 4, 1]),
        }
        add(
            f"cut-{rule}",
            "NaN and inf beyond Nᵢ = 2, 4, 1: gradient exactly 0 there.",
            cut,
            chosen,
            spec=["H4", "H7", "H9"],
        )
    add(
        "unused-nan-last",
        "λ_N is unused: gradient exactly 0, NaN included.",
        {"halt_logits": floats([[0.5, 1.0], [nan, nan]])},
        {"remainder": "last"},
    )
    add(
        "all-minus-1e4-normalize",
        "Uniform over 1..4: the gradient is p·(n - 2.5).",
        {"halt_logits": floats([-1e4] * 4)},
        {"remainder": "normalize"},
        value=[2.5],
        halt_logits=[-0.375, -0.125, 0.125, 0.375],
    )
    add(
        "long-0.01-last",
        "A thousand steps of λ = .01: rounding must not pile up.",
        {"halt_logits": floats([logit("1/100")] * 1000)},
        {"remainder": "last"},
    )
    add(
        "batch-2d-last",
        "A batch of two axes; the mean is over all 4.",
        {"halt_logits": floats([[[0.5, -1.0], [2.0, 0.0]]] * 3)},
        {"remainder": "last"},
    )
    return book


def books() -> list[Book]:
    """The cases of the gradients."""
    return [_ponder(), _steps()]
