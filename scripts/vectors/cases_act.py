"""Golden cases of spec/act.md, gradients included."""

from math import inf, nan

from scripts.vectors.format import Book, f32, floats, ints

PAPER = "app. A; Graves eq. 5 to 12"


def _halting() -> Book:
    book = Book("act_halting", ["A1", "A2"], "app. A; Graves eq. 5 to 7")
    add = book.add
    add(
        "constant-0.3",
        "λ = .3 takes 4 steps: the current λ counts once.",
        {"lambdas": floats([f32(0.3)] * 6)},
        steps=[4],
        remainder=[0.1],
    )
    add(
        "constant-0.4",
        "λ = .4 takes 3 steps.",
        {"lambdas": floats([f32(0.4)] * 6)},
        steps=[3],
        remainder=[0.2],
        weights=[0.4, 0.4, 0.2, 0, 0, 0],
    )
    add(
        "one-step",
        "N = 1: R = 1, whatever λ is.",
        {"lambdas": floats([[0.0, 0.5, 1.0]])},
        steps=[1, 1, 1],
        weights=[1, 1, 1],
    )
    add(
        "first-step",
        "λ₁ ≥ 1 - ε: one step, R = 1, w = (1, 0, 0).",
        {"lambdas": floats([[1.0, 0.9921875], [0.5, 0.5], [0.5, 0.0]])},
        steps=[1, 1],
        remainder=[1, 1],
    )
    add(
        "limit",
        "The limit is reached: the remainder is on N and the weights sum to 1.",
        {"lambdas": floats([0.125, 0.125, 0.25])},
        steps=[3],
        remainder=[0.75],
        weights=[0.125, 0.125, 0.75],
    )
    add(
        "exact-tie",
        "λ = (¼, ½, ..), ε = ¼: the sum is 1 - ε exactly, which is enough.",
        {"lambdas": floats([0.25, 0.5, 0.25, 0.5])},
        {"epsilon": 0.25},
        steps=[2],
        remainder=[0.75],
        weights=[0.25, 0.75, 0, 0],
    )
    add(
        "below-the-tie",
        "A little less than the tie: one step more.",
        {"lambdas": floats([0.25, 0.4921875, 0.25, 0.5])},
        {"epsilon": 0.25},
        steps=[3],
        remainder=[0.2578125],
    )
    add(
        "all-zero",
        "All λ = 0: N steps, everything on the last.",
        {"lambdas": floats([0.0, 0.0, 0.0])},
        steps=[3],
        remainder=[1],
        weights=[0, 0, 1],
    )
    add(
        "epsilon-matters",
        "λ = (½, .4921875): with ε = .01 two steps, with less it would be three.",
        {"lambdas": floats([0.5, 0.4921875, 0.5])},
        steps=[2],
        remainder=[0.5],
    )
    add(
        "epsilon-small",
        "The same with ε = .001: three.",
        {"lambdas": floats([0.5, 0.4921875, 0.5])},
        {"epsilon": 0.001},
        steps=[3],
        remainder=[0.0078125],
    )
    add(
        "batch-2d",
        "A batch of two axes.",
        {"lambdas": floats([[[0.5, 0.25], [1.0, 0.0]], [[0.5, 0.25], [0.25, 0.0]], [[0.5, 0.25], [0.25, 1.0]]])},
        steps=[2, 3, 1, 3],
        remainder=[0.5, 0.5, 1, 1],
    )
    add(
        "nan-before",
        "A NaN before Nᵢ: that example runs to N and is NaN, the other does not change.",
        {"lambdas": floats([[nan, 0.5], [0.5, 0.25]])},
        spec=["A1", "A2", "B6"],
        steps=[2, 2],
    )
    add(
        "nan-beyond",
        "A NaN after Nᵢ, or at the limit, is unused.",
        {"lambdas": floats([[0.5, 0.5], [0.5, 0.25], [nan, nan]])},
        spec=["A1", "A2"],
        steps=[2, 3],
        remainder=[0.5, 0.25],
    )
    return book


def _cost() -> Book:
    book = Book("act_cost", ["A3"], "app. A; Graves eq. 10 to 12")
    add = book.add
    add(
        "plain",
        "τ·(N + R).",
        {"steps": ints([4, 1]), "remainder": floats([0.125, 1.0])},
        {"tau": 0.5},
        result=[2.0625, 1],
    )
    add(
        "small-tau",
        "τ = .001, as in the paper.",
        {"steps": ints([4, 3]), "remainder": floats([0.25, 0.75])},
        {"tau": 0.001},
        result=[0.00425, 0.00375],
    )
    add("zero-tau", "τ = 0: no cost.", {"steps": ints([4]), "remainder": floats([0.25])}, {"tau": 0.0}, result=[0])
    add("scalar-batch", "A batch without axes.", {"steps": ints(2), "remainder": floats(0.5)}, {"tau": 2.0}, result=[5])
    add(
        "batch-2d",
        "A batch of two axes.",
        {"steps": ints([[1, 2], [3, 1000]]), "remainder": floats([[1.0, 0.5], [0.25, 0.125]])},
        {"tau": 1.0},
        result=[2, 2.5, 3.25, 1000.125],
    )
    return book


def _output() -> Book:
    book = Book("act_output", ["A4"], "app. A; Graves eq. 8")
    add = book.add
    add("plain", "¼·4 + ¾·8 = 7.", {"weights": floats([0.25, 0.75]), "y_hat": floats([4.0, 8.0])}, result=[7])
    add(
        "constant",
        "A constant state comes out as itself.",
        {"weights": floats([[0.25, 0.5], [0.5, 0.5], [0.25, 0.0]]), "y_hat": floats([[[3.0, -2.0], [1.5, 7.0]]] * 3)},
        result=[3, -2, 1.5, 7],
    )
    add(
        "nan-beyond",
        "A step of weight 0 contributes exactly 0, whatever it is.",
        {
            "weights": floats([[0.5, 1.0], [0.5, 0.0], [0.0, 0.0]]),
            "y_hat": floats([[2.0, 5.0], [4.0, nan], [nan, inf]]),
        },
        result=[3, 5],
    )
    add(
        "two-trailing-axes",
        "Batch of 1, then two axes more.",
        {
            "weights": floats([[0.25], [0.75]]),
            "y_hat": floats([[[[4.0, 0.0], [8.0, 4.0]]], [[[0.0, 4.0], [8.0, -4.0]]]]),
        },
        result=[1, 3, 8, -2],
    )
    add("one-step", "N = 1.", {"weights": floats([[1.0, 1.0]]), "y_hat": floats([[2.0, 3.0]])}, result=[2, 3])
    add(
        "nan-stays",
        "A NaN of a step that counts stays in its example.",
        {"weights": floats([[0.5, 0.5], [0.5, 0.5]]), "y_hat": floats([[nan, 1.0], [1.0, 2.0]])},
        spec=["A4", "B6"],
        result=[nan, 1.5],
    )
    return book


def _gradient() -> Book:
    book = Book("grad_act", ["A5"], "app. A; Graves eq. 14")
    add = book.add
    add(
        "cost-only",
        "No output: -τ for n < Nᵢ = 4, exactly 0 from 4 on.",
        {"lambdas": floats([f32(0.3)] * 5), "y_hat": floats([[0.0]] * 5), "cotangent": floats([0.0])},
        {"tau": 0.5},
        lambdas=[-0.5, -0.5, -0.5, 0, 0],
    )
    add(
        "output-only",
        "No cost: ŷₙ - ŷ of step Nᵢ, times the cotangent.",
        {
            "lambdas": floats([f32(0.4)] * 5),
            "y_hat": floats([[1.0, 2.0], [3.0, -1.0], [0.5, 4.0], [nan, inf], [7.0, nan]]),
            "cotangent": floats([2.0, -1.0]),
        },
        {"tau": 0.0},
        lambdas=[3, 10, 0, 0, 0],
    )
    both = {
        "lambdas": floats([[0.25, 0.75], [0.5, 0.5], [0.125, 0.25]]),
        "y_hat": floats([[1.0, 2.0], [4.0, -2.0], [2.0, nan]]),
        "cotangent": floats([1.0, 3.0]),
    }
    add(
        "batch",
        "Cost and output; the first example is halted by the limit, the second at 2.",
        both,
        {"tau": 0.125},
        lambdas=[-1.125, 11.875, 1.875, 0, 0, 0],
    )
    add(
        "first-step",
        "Nᵢ = 1: no gradient at all.",
        {"lambdas": floats([0.9990234375, 0.5]), "y_hat": floats([1.0, nan]), "cotangent": floats(1.0)},
        {"tau": 1.0},
        lambdas=[0, 0],
    )
    add(
        "one-step",
        "N = 1: no gradient.",
        {"lambdas": floats([[0.25, 0.5]]), "y_hat": floats([[1.0, 2.0]]), "cotangent": floats([1.0, 1.0])},
        {"tau": 1.0},
        lambdas=[0, 0],
    )
    add(
        "limit-nan",
        "λ_N at the limit is unused: gradient exactly 0, NaN included.",
        {"lambdas": floats([0.25, 0.25, nan]), "y_hat": floats([1.0, 2.0, 4.0]), "cotangent": floats(1.0)},
        {"tau": 0.25},
        lambdas=[-3.25, -2.25, 0],
    )
    add(
        "batch-2d",
        "A batch of two axes with a trailing axis, ε = ¼.",
        {
            "lambdas": floats([[[0.5, 0.125]], [[0.125, 0.25]], [[0.5, 0.5]], [[0.25, 0.25]]]),
            "y_hat": floats(
                [
                    [[[1.0, 0.0], [2.0, 1.0]]],
                    [[[0.0, 1.0], [1.0, 2.0]]],
                    [[[2.0, 2.0], [0.0, 0.0]]],
                    [[[nan, nan], [inf, nan]]],
                ]
            ),
            "cotangent": floats([[[1.0, -1.0], [0.5, 2.0]]]),
        },
        {"tau": 1.0, "epsilon": 0.25},
    )
    return book


def books() -> list[Book]:
    """The cases of adaptive computation time."""
    return [_halting(), _cost(), _output(), _gradient()]
