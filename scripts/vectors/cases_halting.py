"""Golden cases of spec/halting.md but ``log_halting``, which has a module of its own."""

from math import inf, nan

from scripts.vectors.format import Book, f32, floats, ints, log, logit


def _from_lambdas() -> Book:
    book = Book("log_halting_from_lambdas", ["H5"], "§2.2, eq. 2")
    add, last, norm = book.add, {"remainder": "last"}, {"remainder": "normalize"}
    three = floats([f32(0.3)] * 4)
    add(
        "constant-0.3-last",
        "F1 from λ.",
        {"lambdas": three},
        last,
        result=[-1.2039728, -1.5606477, -1.9173227, -1.0700248],
    )
    add(
        "constant-0.3-normalize",
        "F1 from λ, over .7599.",
        {"lambdas": three},
        norm,
        result=[-0.9294044, -1.2860793, -1.6427543, -1.9994292],
    )
    dyadic = floats([0.5, 0.25, 0.75])
    add("dyadic-last", "p = 1/2, 1/8, 3/8.", {"lambdas": dyadic}, last, result=[-0.6931472, -2.0794415, -0.9808293])
    add(
        "dyadic-normalize",
        "p = 16/29, 4/29, 9/29.",
        {"lambdas": dyadic},
        norm,
        result=[-0.5947071, -1.9810015, -1.1700713],
    )
    zero = floats([0.0, 0.0, 0.0])
    add("all-zero-last", "No step halts before N.", {"lambdas": zero}, last, result=[-inf, -inf, 0])
    add(
        "all-zero-normalize", "Defined as uniform.", {"lambdas": zero}, norm, spec=["H3", "H5"], result=[-1.0986123] * 3
    )
    add(
        "all-zero-cut-normalize",
        "Uniform over the example's own steps; NaN beyond does not show.",
        {"lambdas": floats([[0.0, 0.0], [0.0, 0.0], [nan, 0.0]]), "lengths": ints([2, 3])},
        norm,
        spec=["H3", "H4", "H5"],
        result=[-0.6931472, -1.0986123] * 2 + [-inf, -1.0986123],
    )
    ones = floats([[0.5, 1.0, 0.5], [1.0, 0.25, 0.25], [0.25, 1.0, 1.0]])
    add(
        "one-inside-last",
        "λ = 1 ends the example; at N it changes nothing.",
        {"lambdas": ones},
        last,
        result=[-0.6931472, 0, -0.6931472, -0.6931472, -inf, -2.0794415, -inf, -inf, -0.9808293],
    )
    add(
        "one-inside-normalize",
        "λ = 1 ends the example; the masses already sum to 1.",
        {"lambdas": ones},
        norm,
        result=[-0.6931472, 0, -0.6931472, -0.6931472, -inf, -2.0794415, -inf, -inf, -0.9808293],
    )
    mixed = floats([[0.0, 0.0, 1.0], [0.5, 0.0, 0.0], [0.0, 0.5, 0.0]])
    add("zero-and-one-last", "Zeros and ones at each place.", {"lambdas": mixed}, last)
    add("zero-and-one-normalize", "Zeros and ones at each place.", {"lambdas": mixed}, norm)
    add(
        "one-step-last",
        "N = 1, λ = 0, .5, 1 and NaN.",
        {"lambdas": floats([[0.0, 0.5, 1.0, nan]])},
        last,
        result=[0] * 4,
    )
    add("one-step-normalize", "N = 1, λ = 0, .5 and 1.", {"lambdas": floats([[0.0, 0.5, 1.0]])}, norm, result=[0] * 3)
    tiny = floats([2.0**-100] * 4)
    add("tiny-normalize", "λ = 2⁻¹⁰⁰: uniform to the last digit.", {"lambdas": tiny}, norm, result=[-1.3862944] * 4)
    add("tiny-last", "λ = 2⁻¹⁰⁰: 100 log 2 below, and all on N.", {"lambdas": tiny}, last)
    add(
        "nearly-one-last",
        "λ = 1 - 2⁻²⁴, the float32 next to 1: 1 - λ is exact.",
        {"lambdas": floats([1 - 2.0**-24] * 3)},
        last,
        result=[0, -16.6355323, -33.2710647],
    )
    cut = {"lambdas": floats([[0.5, 0.25], [nan, 0.5], [nan, 0.75], [inf, nan]]), "lengths": ints([2, 4])}
    add("cut-last", "NaN at Nᵢ and beyond does not show.", cut, last, spec=["H2", "H4", "H5"])
    cut = {"lambdas": floats([[0.5, 0.25], [0.25, 0.5], [nan, 0.75], [inf, 0.5]]), "lengths": ints([2, 4])}
    add("cut-normalize", "NaN beyond Nᵢ does not show.", cut, norm, spec=["H3", "H4", "H5"])
    add(
        "nan-last",
        "A NaN stays in its example, from its step on.",
        {"lambdas": floats([[0.5, 0.5], [nan, 0.25], [0.25, 0.5]])},
        last,
        spec=["H5", "B6"],
    )
    add(
        "batch-2d-last",
        "A batch of two axes.",
        {"lambdas": floats([[[0.5, 0.25], [0.125, 0.75]], [[0.5] * 2] * 2, [[0.25] * 2] * 2])},
        last,
    )
    return book


def _lengths() -> Book:
    book = Book("halting_lengths", ["H6"], "§2.3")
    add = book.add
    fifth = logit("1/5")
    add(
        "constant-0.2",
        "λ = .2, ε = .05 takes 14 steps, not 13: .8¹³ = .055, .8¹⁴ = .044.",
        {"halt_logits": floats([fifth] * 20)},
        {"epsilon": 0.05},
        result=[14],
    )
    add(
        "constant-0.2-short",
        "The same in an array of 13 steps: N.",
        {"halt_logits": floats([fifth] * 13)},
        {"epsilon": 0.05},
        result=[13],
    )
    add(
        "exact-tie",
        "λ = .5, ε = .25: ½·½ is not less than ε, so 3; the comparison is strict.",
        {"halt_logits": floats([0.0] * 5)},
        {"epsilon": 0.25},
        result=[3],
    )
    add(
        "past-the-tie",
        "λ a little more than .5, ε = .25: 2.",
        {"halt_logits": floats([2.0**-7] * 5)},
        {"epsilon": 0.25},
        result=[2],
    )
    add("never", "The mass left stays above ε: N.", {"halt_logits": floats([-4.0] * 6)}, {"epsilon": 0.05}, result=[6])
    add(
        "uncorrected",
        "λ = .3, N = 8: .7⁸ = .058, so 8; with a normalised p it would be 7.",
        {"halt_logits": floats([logit("3/10")] * 8)},
        {"epsilon": 0.05},
        result=[8],
    )
    add(
        "min-steps",
        "min_steps binds where the first step takes all, and not where more are needed.",
        {"halt_logits": floats([[10.0, -1.0], [-10.0, -1.0], [0.0, 10.0], [0.0, 0.0]])},
        {"epsilon": 0.05, "min_steps": 2},
        result=[2, 3],
    )
    add(
        "min-steps-all",
        "min_steps = N.",
        {"halt_logits": floats([10.0, 10.0, 10.0])},
        {"epsilon": 0.05, "min_steps": 3},
        result=[3],
    )
    add(
        "first-step",
        "The first step is enough without min_steps.",
        {"halt_logits": floats([10.0, 0.0, 0.0])},
        {"epsilon": 0.05},
        result=[1],
    )
    add(
        "nan",
        "A NaN never satisfies the comparison: N from there on, and a step before it counts.",
        {"halt_logits": floats([[nan, 10.0, 0.0], [10.0, nan, nan], [10.0, 0.0, 10.0], [10.0, 0.0, 0.0]])},
        {"epsilon": 0.05},
        spec=["H6", "B6"],
        result=[4, 1, 4],
    )
    add(
        "saturated",
        "Logits of ±1e4 and ±inf.",
        {"halt_logits": floats([[-1e4, 1e4, -inf, inf], [1e4, -1e4, -inf, 0.0], [0.0] * 4])},
        {"epsilon": 0.01},
        spec=["H6", "H10"],
        result=[2, 1, 3, 1],
    )
    add(
        "saturated-half",
        "Logits of ±9984, which half precision holds.",
        {"halt_logits": floats([[-9984.0, 9984.0], [9984.0, 0.0]])},
        {"epsilon": 0.01},
        spec=["H6", "B8"],
        result=[2, 1],
    )
    add("one-step", "N = 1.", {"halt_logits": floats([[0.0, -5.0, 5.0]])}, {"epsilon": 0.01}, result=[1, 1, 1])
    add(
        "epsilon-small",
        "ε = 1e-30: a sum of logarithms, where 1 - Σp would be 0.",
        {"halt_logits": floats([[20.0, 3.0], [20.0, 3.0], [20.0, 3.0], [20.0, 3.0], [20.0, 70.0]])},
        {"epsilon": 1e-30},
        result=[4, 5],
    )
    add(
        "epsilon-large",
        "ε = .9.",
        {"halt_logits": floats([[-1.0, -3.0], [-1.0, -3.0], [-1.0, -3.0]])},
        {"epsilon": 0.9},
        result=[1, 3],
    )
    add(
        "batch-2d",
        "A batch of two axes.",
        {"halt_logits": floats([[[0.0, 4.0], [-1.0, 1.0]]] * 5)},
        {"epsilon": 0.1},
        result=[4, 1, 5, 2],
    )
    return book


def _steps() -> Book:
    book = Book("expected_steps", ["H7"], "app. A")
    add = book.add
    add("dyadic", "½·1 + ¼·2 + ¼·3 = 1.75.", {"log_p": floats([log("1/2"), log("1/4"), log("1/4")])}, result=[1.75])
    f1 = [log("3/10"), log("21/100"), log("147/1000"), log("343/1000")]
    add("constant-0.3", "F1: .3 + .42 + .441 + 1.372 = 2.533.", {"log_p": floats(f1)}, result=[2.533])
    add("one-step", "N = 1.", {"log_p": floats([[0.0, 0.0]])}, result=[1, 1])
    add(
        "cut",
        "Steps of log p = -inf contribute 0.",
        {"log_p": floats([[0.0, -inf], [-inf, -inf], [-inf, 0.0]])},
        result=[1, 3],
    )
    add("underflow", "log p = -1e4 contributes 0 without a NaN.", {"log_p": floats([-1e4, 0.0, -1e4])}, result=[2])
    add(
        "uniform-long",
        "Uniform over a thousand steps: 500.5.",
        {"log_p": floats([log("1/1000")] * 1000)},
        result=[500.5],
    )
    add("nan", "A NaN stays in its example.", {"log_p": floats([[nan, 0.0], [0.0, -inf]])}, spec=["H7", "B6"])
    add(
        "batch-2d",
        "A batch of two axes.",
        {"log_p": floats([[[log("1/2"), 0.0], [log("1/4"), -inf]], [[log("1/2"), -inf], [log("3/4"), 0.0]]])},
        result=[1.5, 1, 1.75, 2],
    )
    return book


def _prediction() -> Book:
    book = Book("expected_prediction", ["H8"], "§2.2")
    add = book.add
    pair = floats([log("1/4"), log("3/4")])
    add("scalar", "¼·2 + ¾·(-2) = -1.", {"log_p": pair, "y_hat": floats([2.0, -2.0])}, result=[-1])
    add(
        "one-trailing-axis",
        "A vector for each step.",
        {"log_p": pair, "y_hat": floats([[1.0, 0.0, 8.0], [5.0, 4.0, 0.0]])},
        result=[4, 3, 2],
    )
    p = floats([[log("1/2"), log("1/4")], [log("1/2"), log("3/4")]])
    y = floats(
        [[[[1.0, 2.0], [3.0, 4.0]], [[4.0, 8.0], [12.0, 16.0]]], [[[3.0, 2.0], [1.0, 0.0]], [[0.0, 4.0], [8.0, 0.0]]]]
    )
    add(
        "two-trailing-axes",
        "Batch of 2, then two axes more.",
        {"log_p": p, "y_hat": y},
        result=[2, 2, 2, 2, 1, 5, 9, 4],
    )
    cut = floats([[0.0, log("1/2"), -inf], [-inf, log("1/2"), 0.0], [-inf, -inf, -inf]])
    y = floats(
        [
            [[1.0, 2.0], [3.0, 4.0], [nan, inf]],
            [[nan, -inf], [5.0, 6.0], [7.0, 8.0]],
            [[inf, nan], [nan, nan], [inf, inf]],
        ]
    )
    add(
        "nan-beyond",
        "Where log p = -inf, a NaN or inf contributes exactly 0.",
        {"log_p": cut, "y_hat": y},
        spec=["H4", "H8"],
        result=[1, 2, 4, 5, 7, 8],
    )
    add(
        "constant",
        "A constant prediction is its own expectation.",
        {"log_p": floats([0.0, -1e4]), "y_hat": floats([[3.5, -2.0]] * 2)},
        result=[3.5, -2],
    )
    add("one-step", "N = 1.", {"log_p": floats([[0.0, 0.0]]), "y_hat": floats([[[1.5], [2.5]]])}, result=[1.5, 2.5])
    add(
        "nan-stays",
        "A NaN of a step that counts stays in its own entry.",
        {"log_p": floats([[0.0, 0.0]]), "y_hat": floats([[[nan, 1.0], [2.0, 3.0]]])},
        spec=["H8", "B6"],
    )
    return book


def books() -> list[Book]:
    """The cases of each function of the halting distribution."""
    return [_from_lambdas(), _lengths(), _steps(), _prediction()]
