"""Golden cases of ``log_halting``."""

from math import inf, nan

from scripts.vectors.format import Book, floats, ints, logit

F1 = [logit("3/10")] * 4
# One column for each example: the saturations of H10, alone and mixed, as [N, batch].
SATURATED = [
    [17.0, -17.0, 20.0, -20.0, 40.0, -40.0, 89.0, -89.0, 1e4, -1e4, 17.0, -1e4],
    [-17.0, 17.0, -20.0, 20.0, -40.0, 40.0, -89.0, 89.0, -1e4, 1e4, -40.0, 1e4],
    [17.0, -17.0, 20.0, -20.0, 40.0, -40.0, 89.0, -89.0, 1e4, -1e4, 89.0, 0.5],
    [0.0, 17.0, -20.0, 20.0, 0.0, 40.0, -89.0, 0.0, 0.0, 1e4, -20.0, -1e4],
]
# Two examples of [4, 2]; the first is cut at 2, the second runs on.
CUT = [[0.5, -1.0], [-0.25, 2.0], [nan, 0.75], [inf, 1.5]]
# The same cut where the logit of step 2, unused under "last", is NaN too.
CUT_UNUSED = [[0.5, -1.0], [nan, 2.0], [nan, 0.75], [-inf, nan]]


def _log_halting() -> Book:
    book = Book("log_halting", ["H1", "H2"], "§2.2, eq. 2 and §2.3")
    add, norm = book.add, {"remainder": "normalize"}
    last = {"remainder": "last"}
    add(
        "constant-0.3-last",
        "F1: p = .3 .21 .147 .343, the mass left is on step 4 once.",
        {"halt_logits": floats(F1)},
        last,
        result=[-1.2039728, -1.5606477, -1.9173227, -1.0700248],
    )
    add(
        "constant-0.3-normalize",
        "F1: .3 .21 .147 .1029, over .7599.",
        {"halt_logits": floats(F1)},
        norm,
        spec=["H1", "H3"],
        result=[-0.9294044, -1.2860793, -1.6427543, -1.9994292],
    )
    add(
        "default-remainder",
        "Without an argument the rule is last: p = .5 .25 .25.",
        {"halt_logits": floats([0.0, 0.0, 0.0])},
        result=[-0.6931472, -1.3862944, -1.3862944],
    )
    add(
        "even-odds-normalize",
        "λ = .5 throughout: p = 4/7, 2/7, 1/7.",
        {"halt_logits": floats([0.0, 0.0, 0.0])},
        norm,
        spec=["H3"],
        result=[-0.5596158, -1.2527630, -1.9459101],
    )
    one = floats([[2.5, -3.0, 1e4, -1e4, 0.0]])
    add(
        "one-step-last",
        "N = 1: everything is on step 1, whatever the logit.",
        {"halt_logits": one},
        last,
        result=[0] * 5,
    )
    add(
        "one-step-normalize",
        "N = 1: everything is on step 1, whatever the logit.",
        {"halt_logits": one},
        norm,
        spec=["H3"],
        result=[0] * 5,
    )
    add("one-step-scalar-batch", "N = 1 without a batch axis.", {"halt_logits": floats([0.75])}, last, result=[0])
    add(
        "one-step-nan-last",
        "N = 1: the only logit is unused, so a NaN does not show.",
        {"halt_logits": floats([nan])},
        last,
        result=[0],
    )
    batch = floats([[0.5, -1.5], [1.0, 2.0], [-0.75, 0.25]])
    add("batch-1d-last", "Two examples side by side.", {"halt_logits": batch}, last)
    add(
        "batch-1d-normalize",
        "Two examples side by side, each with its own normaliser.",
        {"halt_logits": batch},
        norm,
        spec=["H3"],
    )
    cube = floats([[[0.5, -1.5, 3.0], [0.0, 1.0, -2.0]], [[1.25, 2.0, -3.0], [4.0, -4.0, 0.5]]])
    add("batch-2d-last", "A batch of two axes.", {"halt_logits": cube}, last)
    add("batch-2d-normalize", "A batch of two axes.", {"halt_logits": cube}, norm, spec=["H3"])
    add(
        "saturated-last",
        "Logits of ±17, ±20, ±40, ±89 and ±1e4, mixed.",
        {"halt_logits": floats(SATURATED)},
        last,
        spec=["H1", "H2", "H10"],
    )
    add(
        "saturated-normalize",
        "Logits of ±17, ±20, ±40, ±89 and ±1e4, mixed.",
        {"halt_logits": floats(SATURATED)},
        norm,
        spec=["H1", "H3", "H10"],
    )
    first = floats([1e4, 0.5, -0.5, 1.0])
    add(
        "first-1e4-last",
        "The first step takes all; the others stay finite, at -1e4 or less.",
        {"halt_logits": first},
        last,
        spec=["H1", "H10"],
        result=[0, -10000.474077, -10001.948154, -10001.448154],
    )
    add(
        "first-1e4-normalize",
        "The first step takes all; normalising changes nothing.",
        {"halt_logits": first},
        norm,
        spec=["H3", "H10"],
    )
    low, high = floats([-1e4] * 4), floats([1e4] * 4)
    add(
        "all-minus-1e4-last",
        "No step wants to halt: everything is on N.",
        {"halt_logits": low},
        last,
        spec=["H2", "H10"],
        result=[-1e4, -1e4, -1e4, 0],
    )
    add(
        "all-minus-1e4-normalize",
        "No step wants to halt: uniform, without 0/0.",
        {"halt_logits": low},
        norm,
        spec=["H3", "H10"],
        result=[-1.3862944] * 4,
    )
    add(
        "all-plus-1e4-last",
        "Every step wants to halt: the survival falls by 1e4 a step.",
        {"halt_logits": high},
        last,
        spec=["H2", "H10"],
        result=[0, -1e4, -2e4, -3e4],
    )
    add(
        "all-plus-1e4-normalize",
        "Every step wants to halt.",
        {"halt_logits": high},
        norm,
        spec=["H3", "H10"],
        result=[0, -1e4, -2e4, -3e4],
    )
    half = floats([[9.0, -9.0, 9984.0, -9984.0], [9.0, -9.0, -9984.0, 9984.0], [9.0, -9.0, 9984.0, -9984.0], [0.5] * 4])
    add(
        "saturated-half-last",
        "σ(9) is already 1 in bfloat16; logits of ±9984 are exact in half precision.",
        {"halt_logits": half},
        last,
        spec=["H1", "H2", "H10", "B8"],
    )
    add(
        "saturated-half-normalize",
        "σ(9) is already 1 in bfloat16; logits of ±9984 are exact in half precision.",
        {"halt_logits": half},
        norm,
        spec=["H1", "H3", "H10", "B8"],
    )
    cut, short = ints([2, 4]), ["H4"]
    add(
        "cut-last",
        "The first example ends at 2; NaN and inf beyond do not show.",
        {"halt_logits": floats(CUT), "lengths": cut},
        last,
        spec=["H2", *short],
    )
    add(
        "cut-unused-last",
        "The logit of step Nᵢ is unused, NaN included, cut or not.",
        {"halt_logits": floats(CUT_UNUSED), "lengths": cut},
        last,
        spec=["H2", *short],
    )
    add(
        "cut-normalize",
        "The first example ends at 2; NaN and inf beyond do not show.",
        {"halt_logits": floats(CUT), "lengths": cut},
        norm,
        spec=["H3", *short],
    )
    add(
        "cut-alone-last",
        "The first example of cut-last in an array of its own 2 steps.",
        {"halt_logits": floats([0.5, -0.25])},
        last,
        spec=["H2", *short],
    )
    add(
        "cut-alone-normalize",
        "The first example of cut-normalize in an array of its own 2 steps.",
        {"halt_logits": floats([0.5, -0.25])},
        norm,
        spec=["H3", *short],
    )
    add(
        "cut-scalar-batch",
        "A length without a batch axis.",
        {"halt_logits": floats([0.5, -0.25, 1.0]), "lengths": ints(2)},
        last,
        spec=["H2", *short],
    )
    ones = {"halt_logits": floats([[nan, -2.0], [nan, nan], [1.0, inf]]), "lengths": ints([1, 1])}
    add(
        "cut-at-one-last",
        "Nᵢ = 1: log p = 0, then -inf; even the first logit is unused.",
        ones,
        last,
        spec=["H2", *short],
        result=[0, 0, -inf, -inf, -inf, -inf],
    )
    deep = {"halt_logits": floats([[-1e4, -1e4], [-1e4, -1e4], [-1e4, -1e4], [nan, -1e4]]), "lengths": ints([3, 4])}
    add(
        "cut-all-minus-1e4-normalize",
        "Uniform over each example's own steps: 1/3 and 1/4.",
        deep,
        norm,
        spec=["H3", "H4", "H10"],
        result=[-1.0986123, -1.3862944] * 3 + [-inf, -1.3862944],
    )
    grid = {
        "halt_logits": floats([[[0.5, 1.0], [-1.0, 2.0]], [[0.25, nan], [1.5, -0.5]], [[nan, nan], [0.0, 1.0]]]),
        "lengths": ints([[2, 1], [3, 2]]),
    }
    add("cut-2d-last", "Lengths over a batch of two axes.", grid, last, spec=["H2", *short])
    infinite = floats([[0.5, -inf, inf, -inf], [inf, 0.5, 0.0, -inf], [1.0, 0.25, 1.0, -inf]])
    add("infinite-last", "z = ±inf act as λ = 1 and λ = 0.", {"halt_logits": infinite}, last, spec=["H1", "H2"])
    add(
        "infinite-normalize",
        "z = ±inf act as λ = 1 and λ = 0; all -inf is uniform.",
        {"halt_logits": infinite},
        norm,
        spec=["H3"],
    )
    bad = floats([[0.5, 0.5, 0.5], [nan, 0.25, nan], [1.0, -1.0, 1.0], [0.0, nan, 0.0]])
    add(
        "nan-last",
        "A NaN before N makes its example NaN from there on; one at N is unused; the others do not change.",
        {"halt_logits": bad},
        last,
        spec=["H1", "H2", "B6"],
    )
    add(
        "nan-normalize",
        "A NaN within N makes its example NaN throughout, and no other.",
        {"halt_logits": floats([[0.5, 0.5], [nan, 0.25], [1.0, -1.0]])},
        norm,
        spec=["H3", "B6"],
    )
    add(
        "nan-cut-last",
        "A NaN before Nᵢ shows from there to Nᵢ; beyond Nᵢ log p is -inf all the same.",
        {"halt_logits": floats([0.5, nan, 1.0, 2.0]), "lengths": ints(3)},
        last,
        spec=["H2", "H4"],
    )
    add(
        "long-minus-1e4-normalize",
        "A thousand steps of which none wants to halt: -log 1000.",
        {"halt_logits": floats([-1e4] * 1000)},
        norm,
        spec=["H3", "H10"],
    )
    add(
        "long-0.01-last",
        "A thousand steps of λ = .01: rounding must not pile up.",
        {"halt_logits": floats([logit("1/100")] * 1000)},
        last,
        spec=["H1", "H2"],
    )
    deep89 = floats([[-40.0, -89.0, -1e4], [-40.0, -89.0, -1e4], [-40.0, -89.0, -9999.0]])
    add(
        "underflowing-normalize",
        "Every λ is tiny or underflows: ratios of the λ, not 0/0.",
        {"halt_logits": deep89},
        norm,
        spec=["H3", "H10"],
    )
    return book


def books() -> list[Book]:
    """The cases of the halting distribution from logits."""
    return [_log_halting()]
