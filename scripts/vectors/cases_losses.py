"""Golden cases of the losses of spec/losses.md; the priors and the KL are in vector_cases_priors.py."""

from math import inf, nan

from mpmath import mp

from scripts.vectors.cases_priors import F1_LAST, HALF_LOGS, prior
from scripts.vectors.format import Book, f32, floats, ints, log, to_float


def _expected_loss() -> Book:
    book = Book("expected_loss", ["L1"], "§2.4, eq. 3")
    add = book.add
    add(
        "stated",
        "p = (.9, .1), ℓ = (1, 5): 1.4; divided by anything it would be another number.",
        {"log_p": floats([log("9/10"), log("1/10")]), "step_losses": floats([1.0, 5.0])},
        result=[1.4],
    )
    exact = [to_float(mp.log(mp.mpf(9) / 10)), to_float(mp.log(mp.mpf(1) / 10))]
    add(
        "stated-float64",
        "The same with logarithms rounded to float64.",
        {"log_p": floats(exact), "step_losses": floats([1.0, 5.0])},
        dtypes=["float64"],
        result=[1.4],
    )
    add(
        "opposite-confident",
        "Two confident opposite steps: 5, where -log of the mixture would be .693.",
        {"log_p": floats([log("1/2"), log("1/2")]), "step_losses": floats([0.0, 10.0])},
        result=[5],
    )
    add(
        "constant",
        "A constant loss is its own expectation; N = 1000.",
        {"log_p": floats([log("1/1000")] * 1000), "step_losses": floats([2.5] * 1000)},
        result=[2.5],
    )
    add(
        "nan-beyond",
        "Where log p = -inf, a NaN or inf loss contributes exactly 0.",
        {
            "log_p": floats([[0.0, -inf], [-inf, 0.0], [-inf, -inf]]),
            "step_losses": floats([[2.0, nan], [nan, 3.0], [inf, -inf]]),
        },
        spec=["H4", "L1"],
        result=[2, 3],
    )
    add(
        "underflow",
        "A finite log p of -1e4 contributes 0 to a finite loss.",
        {"log_p": floats([0.0, -1e4]), "step_losses": floats([1.0, f32(1e30)])},
        result=[1],
    )
    add(
        "one-step",
        "N = 1; losses may be negative.",
        {"log_p": floats([[0.0, 0.0]]), "step_losses": floats([[-1.5, 4.0]])},
        result=[-1.5, 4],
    )
    add(
        "nan-stays",
        "A NaN that counts makes its own example NaN.",
        {"log_p": floats([[0.0, 0.0]]), "step_losses": floats([[nan, 4.0]])},
        spec=["L1", "B6"],
    )
    add(
        "infinite-loss",
        "An infinite loss at a step that counts is infinite.",
        {"log_p": floats([log("1/4"), log("3/4")]), "step_losses": floats([inf, 1.0])},
        result=[inf],
    )
    add(
        "batch-2d",
        "A batch of two axes, p = ¼, ¾ and ½, ½ with logarithms rounded to bfloat16.",
        {
            "log_p": floats([[[HALF_LOGS[1], HALF_LOGS[2]]], [[HALF_LOGS[3], HALF_LOGS[2]]]]),
            "step_losses": floats([[[1.0, 2.0]], [[4.0, -8.0]]]),
        },
        spec=["L1", "B8"],
    )
    return book


def _mean() -> Book:
    book = Book("weighted_mean", ["L3"], "§2.4")
    add = book.add
    add("plain", "Without weights: the mean.", {"values": floats([1.0, 2.0, 6.0])}, result=[3])
    add("weights", "(1·1 + 3·5)/4 = 4.", {"values": floats([1.0, 5.0]), "weights": floats([1.0, 3.0])}, result=[4])
    add(
        "weights-below-one",
        "Weights that sum to less than 1.",
        {"values": floats([1.0, 5.0]), "weights": floats([0.125, 0.125])},
        result=[3],
    )
    add(
        "zero-weight-nan",
        "Weight 0 on NaN and inf: exactly 0.",
        {"values": floats([1.0, nan, 5.0, inf, -inf]), "weights": floats([1.0, 0.0, 1.0, 0.0, 0.0])},
        result=[3],
    )
    add("scalar-batch", "A batch without axes.", {"values": floats(2.5)}, result=[2.5])
    add(
        "scalar-batch-weight",
        "A batch without axes, with a weight.",
        {"values": floats(2.5), "weights": floats(4.0)},
        result=[2.5],
    )
    add(
        "batch-2d",
        "Over all axes.",
        {"values": floats([[1.0, 2.0], [3.0, 4.0]]), "weights": floats([[1.0, 0.0], [2.0, 1.0]])},
        result=[2.75],
    )
    add("nan-counts", "A NaN of positive weight is not hidden.", {"values": floats([1.0, nan])}, result=[nan])
    return book


def _ponder() -> Book:
    book = Book("ponder_loss", ["L4"], "§2.4, eq. 3")
    add = book.add
    log_9, log_1, half = log("9/10"), log("1/10"), log("1/2")
    opposite = {
        "log_p": floats([[log_9, log_1], [log_1, log_9]]),
        "step_losses": floats([[0.0, 1.0], [1.0, 0.0]]),
        "log_prior": floats([half, half]),
    }
    add(
        "opposite-pair",
        "F3: each example halts where it is right: .1; means taken before weighting would give .5.",
        opposite,
        {"beta": 0.01},
        spec=["L3", "L4"],
        loss_rec=[0.1],
        loss_reg=[0.3680642],
        loss=[0.1036806],
    )
    f1 = {"log_p": floats(F1_LAST), "step_losses": floats([4.0, 2.0, 1.0, 0.5]), "log_prior": floats(prior(0.2, 4))}
    for beta in (0.01, 0.0, 2.0):
        add(
            f"f1-beta-{beta:g}",
            f"F1 against λ_p = .2 with β = {beta:g}: β enters once.",
            f1,
            {"beta": beta},
            loss_rec=[1.9385],
        )
    add(
        "one-step",
        "N = 1: the loss itself, KL 0.",
        {"log_p": floats([[0.0, 0.0]]), "step_losses": floats([[3.0, 5.0]]), "log_prior": floats([0.0])},
        {"beta": 0.5},
        loss=[4],
        loss_reg=[0],
    )
    cut = {
        "log_p": floats([[0.0, half], [-inf, half], [-inf, -inf]]),
        "step_losses": floats([[2.0, 1.0], [nan, 3.0], [inf, nan]]),
        "log_prior": floats(prior(0.5, 3)),
    }
    add(
        "cut",
        "Steps beyond Nᵢ add nothing, and the prior stays the one over 1..N.",
        cut,
        {"beta": 1.0},
        spec=["H4", "L4"],
        loss_rec=[2],
        example_reg=[0.5596158, 0.2130422],
    )
    weighted = {
        "log_p": floats([[log_9, nan, half], [log_1, nan, half]]),
        "step_losses": floats([[1.0, nan, 2.0], [5.0, inf, 4.0]]),
        "log_prior": floats([half, half]),
        "weights": floats([3.0, 0.0, 1.0]),
    }
    add(
        "zero-weight-nan",
        "A row of weight 0 is exactly 0 in every part, though NaN; (3·1.4 + 3)/4 = 1.8.",
        weighted,
        {"beta": 0.1},
        spec=["L3", "L4"],
        loss_rec=[1.8],
        example_rec=[1.4, 0, 3],
    )
    odd = {
        "log_p": floats([[0.0, half], [-1e4, half]]),
        "step_losses": floats([[1.0, 2.0], [7.0, 2.0]]),
        "log_prior": floats([0.0, -inf]),
    }
    add(
        "infinite-kl",
        "A prior of λ_p = 1 that p does not meet: +inf, never NaN.",
        odd,
        {"beta": 0.01},
        loss=[inf],
        loss_rec=[1.5],
        example_reg=[inf, inf],
    )
    met = {"log_p": floats([0.0, -inf]), "step_losses": floats([1.0, nan]), "log_prior": floats([0.0, -inf])}
    add("lambda-1-met", "A prior of λ_p = 1 and p = (1, 0): the KL is 0.", met, {"beta": 0.01}, loss=[1], loss_reg=[0])
    each = {
        "log_p": floats([[half, log_9], [half, log_1]]),
        "step_losses": floats([[1.0, 1.0], [3.0, 5.0]]),
        "log_prior": floats([[half, log_1], [half, log_9]]),
    }
    add("prior-per-example", "A prior [N, B].", each, {"beta": 1.0}, example_reg=[0, 1.7577797], loss_rec=[1.7])
    long = {
        "log_p": floats([log("1/1000")] * 1000),
        "step_losses": floats([0.75] * 1000),
        "log_prior": floats([log("1/1000")] * 1000),
    }
    add(
        "long",
        "Uniform p and prior over a thousand steps, constant loss.",
        long,
        {"beta": 0.01},
        loss=[0.75],
        loss_reg=[0],
    )
    grid = {
        "log_p": floats([[HALF_LOGS[1:3], [0.0, HALF_LOGS[3]]], [HALF_LOGS[3:1:-1], [-inf, HALF_LOGS[1]]]]),
        "step_losses": floats([[[1.0, 2.0], [3.0, 4.0]], [[5.0, 6.0], [nan, 8.0]]]),
        "log_prior": floats(HALF_LOGS[3:0:-2]),
        "weights": floats([[1.0, 2.0], [0.5, 0.5]]),
    }
    add(
        "batch-2d-half",
        "A batch of two axes with weights; half precision.",
        grid,
        {"beta": 0.5},
        spec=["L3", "L4", "B8"],
    )
    mates = {
        "log_p": floats([[half, 0.0], [half, -inf]]),
        "step_losses": floats([[nan, 1.0], [1.0, nan]]),
        "log_prior": floats([half, half]),
    }
    add(
        "nan-stays",
        "A NaN loss of positive weight makes loss and loss_rec NaN, and of the examples only its own.",
        mates,
        {"beta": 0.01},
        spec=["L4", "B6"],
    )
    return book


def _pondering() -> Book:
    """Rows of weight 0 beside the same rows without them: targets and predictions of weight 0 have no influence."""
    book = Book("training_loss", ["M6", "L3"], "§2.4, eq. 3")
    log_p = [[log("1/2"), log("1/4")], [log("1/2"), log("3/4")]]
    alone = {
        "y_hat": floats([[[0.0, 0.0], [0.0, 2.0]], [[4.0, 0.0], [1.0, 1.0]]]),
        "log_p": floats(log_p),
        "log_prior": floats([log("1/2"), log("1/2")]),
        "targets": ints([0, 1]),
        "weights": floats([1.0, 3.0]),
    }
    classes = {"criterion": "cross_entropy", "beta": 0.5}
    # Row 1: (log 2 + log(1 + e^-4)) / 2; row 2: log(1 + e^-2) / 4 + 3 log 2 / 4.
    stated = {"loss_rec": [0.5026064], "example_rec": [0.3556486, 0.5515924]}
    add = book.add
    add("classes", "Two examples with weights 1 and 3.", alone, classes, spec=["M6"], loss_rec=stated["loss_rec"])
    for name, comment, y_hat, target in (
        ("target-100", "An example of weight 0 whose target is no class: the loss is that without it.", 3.0, -100),
        ("prediction-nan", "An example of weight 0 whose prediction is NaN.", nan, 1),
        ("prediction-inf", "An example of weight 0 with infinite predictions and a target beyond the classes.", inf, 2),
    ):
        padded = {
            "y_hat": floats([[[0.0, 0.0], [y_hat, y_hat], [0.0, 2.0]], [[4.0, 0.0], [y_hat, -y_hat], [1.0, 1.0]]]),
            "log_p": floats([[a, log("1/2"), b] for a, b in log_p]),
            "log_prior": alone["log_prior"],
            "targets": ints([0, target, 1]),
            "weights": floats([1.0, 0.0, 3.0]),
        }
        first, second = stated["example_rec"]
        add(name, comment, padded, classes, loss_rec=stated["loss_rec"], example_rec=[first, 0, second])
    numbers = {
        "y_hat": floats([[1.0, nan, 2.0], [3.0, inf, 2.0]]),
        "log_p": floats([[log("1/2")] * 3] * 2),
        "log_prior": floats([log("1/2"), log("1/2")]),
        "targets": floats([0.0, nan, 4.0]),
        "weights": floats([2.0, 0.0, 1.0]),
    }
    add(
        "number-nan",
        "Squared errors; the example of weight 0 has NaN as target.",
        numbers,
        {"criterion": "squared_error", "beta": 0.0},
        loss=[14 / 3],
        example_rec=[5, 0, 4],
    )
    return book


def books() -> list[Book]:
    """The cases of the losses."""
    return [_expected_loss(), _mean(), _ponder(), _pondering()]
