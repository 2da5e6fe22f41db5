"""Golden cases of spec/sampling.md."""

from math import inf, nan

from scripts.vectors.format import Book, f32, floats, ints, log, words


def _threefry() -> Book:
    book = Book("threefry2x32", ["S1"], "beyond the paper")
    add = book.add
    add(
        "known-zeros",
        "Published known answer: all zeros.",
        {"key": words([0, 0]), "counter": words([0, 0])},
        result=[0x6B200159, 0x99BA4EFE],
    )
    ones = words([0xFFFFFFFF, 0xFFFFFFFF])
    add(
        "known-ones",
        "Published known answer: all ones.",
        {"key": ones, "counter": ones},
        result=[0x1CB996FC, 0xBB002BE7],
    )
    add(
        "known-pi",
        "Published known answer: digits of π.",
        {"key": words([0x13198A2E, 0x03707344]), "counter": words([0x243F6A88, 0x85A308D3])},
        result=[0xC4923A9C, 0x483DF7A0],
    )
    add(
        "known-batch",
        "The three known answers as a batch: the first axis holds the two words.",
        {
            "key": words([[0, 0xFFFFFFFF, 0x13198A2E], [0, 0xFFFFFFFF, 0x03707344]]),
            "counter": words([[0, 0xFFFFFFFF, 0x243F6A88], [0, 0xFFFFFFFF, 0x85A308D3]]),
        },
        result=[0x6B200159, 0x1CB996FC, 0xC4923A9C, 0x99BA4EFE, 0xBB002BE7, 0x483DF7A0],
    )
    add(
        "one-bit",
        "One bit set in each of the four words in turn, as a batch of 2 by 2.",
        {"key": words([[[1, 0], [0, 0]], [[0, 1], [0, 0]]]), "counter": words([[[0, 0], [1, 0]], [[0, 0], [0, 1]]])},
    )
    add(
        "high-bit",
        "The sign bit of an int32, in each of the four words in turn.",
        {
            "key": words([[0x80000000, 0, 0, 0], [0, 0x80000000, 0, 0]]),
            "counter": words([[0, 0, 0x80000000, 0], [0, 0, 0, 0x80000000]]),
        },
    )
    add(
        "mixed",
        "Words without pattern.",
        {"key": words([0xDEADBEEF, 0x01234567]), "counter": words([0x89ABCDEF, 0xCAFEF00D])},
    )
    return book


def _uniforms() -> Book:
    book = Book("halting_uniforms", ["S2"], "§2.5")
    add = book.add
    add("seed-0", "Seed 0, three examples, three steps.", {"example_ids": ints([0, 1, 2])}, {"seed": 0, "max_steps": 3})
    add(
        "seed-0-reordered",
        "The same examples in another order, and fewer steps.",
        {"example_ids": ints([2, 0])},
        {"seed": 0, "max_steps": 2},
    )
    add(
        "seed-64-bit",
        "A seed above 2³²: its high word is the second key.",
        {"example_ids": ints([0, 7])},
        {"seed": 0x0123456789ABCDEF, "max_steps": 2},
    )
    add("seed-largest", "Seed 2⁶⁴ - 1.", {"example_ids": ints([0])}, {"seed": 2**64 - 1, "max_steps": 2})
    add(
        "seed-high-word-only",
        "Seed 2³² is not seed 0 and not seed 1.",
        {"example_ids": ints([0])},
        {"seed": 2**32, "max_steps": 2},
    )
    add(
        "ids-large",
        "Ids next to 2³² and 2³¹.",
        {"example_ids": words([2**32 - 1, 2**32 - 2, 2**31, 2**31 - 1])},
        {"seed": 3, "max_steps": 2},
    )
    add(
        "ids-negative",
        "Negative ids are taken mod 2³²: -1, -2 and -2³¹ are the first three of ids-large.",
        {"example_ids": ints([-1, -2, -(2**31), 2**31 - 1])},
        {"seed": 3, "max_steps": 2},
    )
    add("draw", "Draw 1 is another repetition.", {"example_ids": ints([0, 1])}, {"seed": 0, "max_steps": 2, "draw": 1})
    add(
        "draw-largest",
        "Draw 4095, the largest.",
        {"example_ids": ints([0, 1])},
        {"seed": 0, "max_steps": 2, "draw": 4095},
    )
    add(
        "domain",
        "Domain 8, the first for users.",
        {"example_ids": ints([0, 1])},
        {"seed": 0, "max_steps": 2, "domain": 8},
    )
    add(
        "all-fields",
        "Seed, draw and domain together; domain 15 sets the sign bit of the word.",
        {"example_ids": ints([5, 123456789])},
        {"seed": 2**40 + 17, "max_steps": 3, "draw": 2049, "domain": 15},
    )
    add("ids-2d", "Ids of two axes.", {"example_ids": ints([[0, 1, 2], [3, 4, 5]])}, {"seed": 42, "max_steps": 2})
    add("ids-scalar", "One id without an axis.", {"example_ids": ints(9)}, {"seed": 42, "max_steps": 3})
    return book


def _sample() -> Book:
    book = Book("sample_steps", ["S3"], "§2.5")
    add = book.add
    add(
        "plain",
        "The first n with uₙ < λₙ.",
        {"lambdas": floats([0.25, 0.5, 0.75]), "uniforms": floats([0.5, 0.375, 0.0])},
        result=[2],
    )
    add(
        "tie",
        "u = λ exactly does not halt: the comparison is strict.",
        {"lambdas": floats([0.5, 0.25, 0.5]), "uniforms": floats([0.5, 0.25, 0.25])},
        result=[3],
    )
    next_up = f32(0.3) + 2.0**-25
    add(
        "next-to-tie",
        "u one float32 below λ halts; at or above it does not.",
        {
            "lambdas": floats([[f32(0.3), f32(0.3), next_up]] * 3),
            "uniforms": floats([[f32(0.3), next_up, f32(0.3)]] * 3),
        },
        result=[3, 3, 1],
    )
    add(
        "wider-dtype",
        "λ = ½ + 2⁻⁴⁰ is more than u = ½, if compared in float64.",
        {"lambdas": floats([0.5 + 2.0**-40, 0.0]), "uniforms": floats([0.5, 0.5])},
        dtypes=["float64"],
        result=[1],
    )
    add(
        "u-zero",
        "u = 0 halts for every λ > 0 and not for λ = 0.",
        {"lambdas": floats([[2.0**-14, 0.0], [0.5, 2.0**-14], [0.5, 0.5]]), "uniforms": floats([[0.0, 0.0]] * 3)},
        result=[1, 2],
    )
    add(
        "lambda-one",
        "λ = 1 always halts, at the largest u too.",
        {"lambdas": floats([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]), "uniforms": floats([[1 - 2.0**-24] * 2] * 3)},
        result=[1, 2],
    )
    add(
        "lambda-zero",
        "λ = 0 never halts: forced at N.",
        {"lambdas": floats([[0.0] * 2] * 4), "uniforms": floats([[0.0, 0.5]] * 4)},
        result=[4, 4],
    )
    add(
        "conditional",
        "λ = ½, u₂ = .375 halts at 2; compared with p₂ = ¼ it would go on.",
        {"lambdas": floats([0.5] * 4), "uniforms": floats([0.75, 0.375, 0.3125, 0.875])},
        result=[2],
    )
    cut = {
        "lambdas": floats([[0.25, 0.25, 0.25], [0.25, 0.5, 0.25], [nan, 1.0, 0.25], [1.0, 1.0, 1.0]]),
        "uniforms": floats([[0.5] * 3, [0.5, 0.25, 0.5], [0.0] * 3, [0.0] * 3]),
        "lengths": ints([2, 4, 1]),
    }
    add("lengths", "Forced at Nᵢ: what lies beyond does not count.", cut, spec=["H4", "S3"], result=[2, 2, 1])
    alone = {"lambdas": floats([0.25] * 3), "uniforms": floats([0.5] * 3), "lengths": ints(2)}
    add("lengths-alone", "A single example without batch axes, forced at 2.", alone, spec=["S3", "H4"], result=[2])
    add(
        "one-step",
        "N = 1: 1 whatever λ is.",
        {"lambdas": floats([[0.0, 1.0, nan]]), "uniforms": floats([[0.5] * 3])},
        result=[1, 1, 1],
    )
    add(
        "nan",
        "A NaN λ does not halt, and does not stop a later step.",
        {
            "lambdas": floats([[nan, nan], [0.5, nan], [0.5, nan]]),
            "uniforms": floats([[0.0, 0.0], [0.25, 0.0], [0.0, 0.0]]),
        },
        spec=["S3", "B6"],
        result=[2, 3],
    )
    add(
        "batch-2d",
        "A batch of two axes.",
        {
            "lambdas": floats([[[0.5, 0.25], [0.75, 0.125]]] * 3),
            "uniforms": floats([[[0.25, 0.5], [0.875, 0.5]], [[0.0, 0.125], [0.75, 0.25]], [[0.0] * 2] * 2]),
        },
        result=[1, 2, 3, 3],
    )
    return book


def _quantile() -> Book:
    book = Book("quantile_steps", ["S6"], "beyond the paper")
    add = book.add
    add("stated-one", "log p = (0, -1e4), q = 1: 1 step.", {"log_p": floats([0.0, -1e4])}, {"q": 1.0}, result=[1])
    add(
        "stated-two",
        "log p = (-inf, 0, -inf), q = 1: 2 steps.",
        {"log_p": floats([-inf, 0.0, -inf])},
        {"q": 1.0},
        result=[2],
    )
    f1 = floats([log("3/10"), log("21/100"), log("147/1000"), log("343/1000")])
    for q, steps in ((0.1, 1), (0.29, 1), (0.31, 2), (0.5, 2), (0.6, 3), (0.7, 4), (0.99, 4), (1.0, 4)):
        add(
            f"f1-{q:g}",
            f"F1: the cumulative sums are .3, .51, .657, 1; q = {q:g} takes {steps}.",
            {"log_p": f1},
            {"q": q},
            result=[steps],
        )
    half = log("1/2")
    add(
        "rounding-leaves-none",
        "exp of the float32 of log ½ is a little less than ½, so that Σp < 1 = q: the last n that counts.",
        {"log_p": floats([[half, 0.0], [half, -inf], [-inf, -inf], [-inf, -inf]])},
        {"q": 1.0},
        result=[2, 1],
    )
    add(
        "tails",
        "Cut examples: -inf at the end and at the start.",
        {"log_p": floats([[log("1/4"), -inf], [log("3/4"), log("1/4")], [-inf, log("3/4")]])},
        {"q": 0.9},
        result=[2, 3],
    )
    add("one-step", "N = 1.", {"log_p": floats([[0.0, 0.0]])}, {"q": 0.5}, result=[1, 1])
    add(
        "long",
        "Uniform over a thousand steps, q = .9005: 901.",
        {"log_p": floats([log("1/1000")] * 1000)},
        {"q": 0.9005},
        result=[901],
    )
    add(
        "batch-2d",
        "A batch of two axes.",
        {"log_p": floats([[[log("1/4"), log("1/2")]], [[log("1/4"), log("1/4")]], [[half, log("1/4")]]])},
        {"q": 0.4},
        result=[2, 1],
    )
    return book


def books() -> list[Book]:
    """The cases of the random numbers and exits."""
    return [_threefry(), _uniforms(), _sample(), _quantile()]
