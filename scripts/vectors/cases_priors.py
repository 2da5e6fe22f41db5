"""Golden cases of the priors and of the KL divergence to them."""

from math import inf, nan

from mpmath import mp

from scripts.vectors.format import Book, bf16, f32, floats, log, to_float
from scripts.vectors.maths import geometric_log_prior, kl, log_halting_from_lambdas

F1_LAST = [log("3/10"), log("21/100"), log("147/1000"), log("343/1000")]
FIFTH = mp.mpf(0.2)
# log 0, ¼, ½, ¾ rounded to bfloat16, indexed by quarters: inputs that half precision holds.
HALF_LOGS = [-inf] + [bf16(log(f"{quarters}/4")) for quarters in (1, 2, 3)]


def prior(lambda_p: float, steps: int, remainder: str = "normalize") -> list[float]:
    """A geometric prior, rounded to float32 to be an input."""
    return [f32(x) for x in geometric_log_prior(mp.mpf(lambda_p), steps, remainder)]


def _geometric() -> Book:
    book = Book("geometric_log_prior", ["P1"], "§2.4")
    add, last = book.add, {"remainder": "last"}
    add(
        "0.5-normalize",
        "λ_p = ½, N = 3: 4/7, 2/7, 1/7.",
        {},
        {"lambda_p": 0.5, "max_steps": 3},
        result=[-0.5596158, -1.2527630, -1.9459101],
    )
    add(
        "0.5-last",
        "λ_p = ½, N = 3: ½, ¼, ¼.",
        {},
        {"lambda_p": 0.5, "max_steps": 3, **last},
        spec=["P2"],
        result=[-0.6931472, -1.3862944, -1.3862944],
    )
    add(
        "0.3-normalize",
        "λ_p = .3, N = 4: .3 .21 .147 .1029, over .7599.",
        {},
        {"lambda_p": 0.3, "max_steps": 4},
        result=[-0.9294044, -1.2860793, -1.6427543, -1.9994292],
    )
    add(
        "0.3-last",
        "λ_p = .3, N = 4: the tail .343 on 4.",
        {},
        {"lambda_p": 0.3, "max_steps": 4, **last},
        spec=["P2"],
        result=[-1.2039728, -1.5606477, -1.9173227, -1.0700248],
    )
    for rule, spec in (("normalize", "P1"), ("last", "P2")):
        chosen = {"remainder": rule}
        add(f"one-step-{rule}", "N = 1: (0).", {}, {"lambda_p": 0.2, "max_steps": 1, **chosen}, spec=[spec], result=[0])
        add(
            f"lambda-1-{rule}",
            "λ_p = 1 is legal: (0, -inf, -inf, -inf).",
            {},
            {"lambda_p": 1.0, "max_steps": 4, **chosen},
            spec=[spec],
            result=[0, -inf, -inf, -inf],
        )
        add(
            f"lambda-1-one-step-{rule}",
            "λ_p = 1 and N = 1: (0).",
            {},
            {"lambda_p": 1.0, "max_steps": 1, **chosen},
            spec=[spec],
            result=[0],
        )
        add(
            f"0.9-twenty-{rule}",
            "λ_p = .9, N = 20: the last entry is 9e-20 (normalised) or 1e-19, and no epsilon hides it.",
            {},
            {"lambda_p": 0.9, "max_steps": 20, **chosen},
            spec=[spec],
        )
        add(
            f"tiny-{rule}",
            "λ_p = 1e-8: nearly uniform where normalised, nearly all on N under last.",
            {},
            {"lambda_p": 1e-8, "max_steps": 4, **chosen},
            spec=[spec],
        )
    add("long-normalize", "N = 1000, λ_p = .01.", {}, {"lambda_p": 0.01, "max_steps": 1000})
    add(
        "default-remainder",
        "Without an argument the prior is normalised.",
        {},
        {"lambda_p": 0.2, "max_steps": 2},
        result=[-0.5877867, -0.8109302],
    )
    return book


def _others() -> list[Book]:
    uniform = Book("uniform_log_prior", ["P3"], "beyond the paper")
    uniform.add("four", "-log 4.", {}, {"max_steps": 4}, result=[-1.3862944] * 4)
    uniform.add("one-step", "N = 1: (0).", {}, {"max_steps": 1}, result=[0])
    uniform.add("long", "-log 1000.", {}, {"max_steps": 1000}, result=[-6.9077553] * 1000)
    poisson = Book("poisson_log_prior", ["P4"], "beyond the paper")
    add, last = poisson.add, {"remainder": "last"}
    add(
        "1-normalize",
        "Rate 1, N = 3: 1, 1, ½ over 5/2, so step 1 is possible.",
        {},
        {"rate": 1.0, "max_steps": 3},
        result=[-0.9162907, -0.9162907, -1.6094379],
    )
    add(
        "1-last",
        "Rate 1, N = 3: 1/e, 1/e, 1 - 2/e.",
        {},
        {"rate": 1.0, "max_steps": 3, **last},
        result=[-1, -1, -1.3308935],
    )
    add("2.5-normalize", "A rate that is not an integer.", {}, {"rate": 2.5, "max_steps": 6})
    add("2.5-last", "A rate that is not an integer.", {}, {"rate": 2.5, "max_steps": 6, **last})
    add("one-step-normalize", "N = 1: (0).", {}, {"rate": 3.0, "max_steps": 1}, result=[0])
    add("one-step-last", "N = 1: (0).", {}, {"rate": 3.0, "max_steps": 1, **last}, result=[0])
    add(
        "small-rate-last",
        "Rate .1, N = 12: the tail is 2.3e-19, which 1 - Σ cannot give.",
        {},
        {"rate": 0.1, "max_steps": 12, **last},
    )
    add("large-rate-last", "Rate 30, N = 5: all but 3.6e-9 is on N.", {}, {"rate": 30.0, "max_steps": 5, **last})
    add(
        "large-rate-normalize",
        "Rate 800, N = 4: exp(-rate) underflows, the ratios do not.",
        {},
        {"rate": 800.0, "max_steps": 4},
    )
    return [uniform, poisson]


def zero_lambdas(steps: int) -> list[mp.mpf]:
    """The λ at which the KL to the normalised prior of λ_p = .2 is 0."""
    return [FIFTH / (1 - (1 - FIFTH) ** (steps - n)) for n in range(steps)]


def _kl() -> Book:
    book = Book("kl_divergence", ["L2"], "§2.4, eq. 3")
    add = book.add
    p, q = floats([log("9/10"), log("1/10")]), floats([log("1/2"), log("1/2")])
    add(
        "direction",
        "p = (.9, .1), prior uniform: .368; the other way round it is .511.",
        {"log_p": p, "log_prior": q},
        result=[0.3680642],
    )
    add(
        "direction-reversed",
        "The arguments the other way round: .511.",
        {"log_p": q, "log_prior": p},
        result=[0.5108256],
    )
    add(
        "equal",
        "p = prior: exactly 0.",
        {"log_p": floats(prior(0.2, 5)), "log_prior": floats(prior(0.2, 5))},
        result=[0],
    )
    for name, digits, dtypes in (("float32", f32, None), ("float64", to_float, ["float64"])):
        log_p = [digits(x) for x in log_halting_from_lambdas([mp.mpf(digits(x)) for x in zero_lambdas(5)], "last", 5)]
        log_q = [digits(x) for x in geometric_log_prior(FIFTH, 5, "normalize")]
        add(
            f"zero-point-{name}",
            f"λₙ = λ_p/(1-(1-λ_p)^(N-n+1)): 0 up to inputs rounded to {name}.",
            {"log_p": floats(log_p), "log_prior": floats(log_q)},
            dtypes=dtypes,
            spec=["L2", "P1"],
        )
    flat = log_halting_from_lambdas([FIFTH] * 5, "last", 5)
    rows = {rule: geometric_log_prior(FIFTH, 5, rule) for rule in ("normalize", "last")}
    difference = kl(flat, rows["normalize"]) - kl(flat, rows["last"])
    law = mp.log(1 - (1 - FIFTH) ** 5) - mp.exp(flat[-1]) * mp.log(FIFTH)
    assert mp.almosteq(difference, law), "the law of the two prior rules"
    for rule, value in (("normalize", to_float(difference)), ("last", 0.0)):
        add(
            f"constant-0.2-prior-{rule}",
            f"λ = λ_p = .2 with the prior of rule {rule}: 0 for last only; the rules do not differ by a constant.",
            {"log_p": floats([f32(x) for x in flat]), "log_prior": floats(prior(0.2, 5, rule))},
            spec=["L2", "P1", "P2"],
            result=[value],
        )
        add(
            f"f1-prior-{rule}",
            "F1 against λ_p = .2; the difference of the two rules is log(1-(1-λ_p)^N) - p_N·log λ_p = .025.",
            {"log_p": floats(F1_LAST), "log_prior": floats(prior(0.2, 4, rule))},
            spec=["L2", "P1", "P2"],
        )
    add(
        "tail",
        "λ_p = .9, N = 20, p uniform: an epsilon in the logarithm would show.",
        {"log_p": floats([log("1/20")] * 20), "log_prior": floats(prior(0.9, 20))},
    )
    pair = floats([[log("1/2"), log("1/4")], [log("1/2"), log("3/4")]])
    add(
        "prior-per-example",
        "A prior [N, B]: each example has its own.",
        {"log_p": pair, "log_prior": floats([[log("1/4"), log("1/2")], [log("3/4"), log("1/2")]])},
        result=[0.1438410, 0.1308120],
    )
    add("prior-shared", "A prior [N] is that of every example.", {"log_p": pair, "log_prior": q}, result=[0, 0.1308120])
    add(
        "infinite",
        "log p = -1e4 is finite where the prior is -inf: +inf, though exp(log p) underflows; never NaN.",
        {"log_p": floats([0.0, -1e4]), "log_prior": floats([0.0, -inf])},
        result=[inf],
    )
    add(
        "infinite-half",
        "The same with log p = -9984, and with log p = log ½.",
        {"log_p": floats([[0.0, HALF_LOGS[2]], [-9984.0, HALF_LOGS[2]]]), "log_prior": floats([0.0, -inf])},
        spec=["L2", "B8"],
        result=[inf, inf],
    )
    add(
        "both-minus-inf",
        "Both -inf: the term is 0.",
        {"log_p": floats([0.0, -inf]), "log_prior": floats([0.0, -inf])},
        result=[0],
    )
    add(
        "cut",
        "log p = -inf where the prior is finite, -inf or NaN: the term is 0.",
        {
            "log_p": floats([[0.0, -inf], [-inf, 0.0], [-inf, -inf]]),
            "log_prior": floats([[-1.0, -inf], [-2.0, -0.5], [nan, nan]]),
        },
        result=[1, 0.5],
    )
    add("one-step", "N = 1: 0.", {"log_p": floats([[0.0, 0.0]]), "log_prior": floats([0.0])}, result=[0, 0])
    add(
        "infinite-stays",
        "An infinite KL stays in its example.",
        {"log_p": floats([[log("1/2"), 0.0], [log("1/2"), -inf]]), "log_prior": floats([0.0, -inf])},
        spec=["L2", "B6"],
        result=[inf, 0],
    )
    add(
        "nan-stays",
        "A NaN stays in its example.",
        {"log_p": floats([[nan, log("1/2")], [0.0, log("1/2")]]), "log_prior": q},
        spec=["L2", "B6"],
    )
    add(
        "long",
        "Uniform p and prior over a thousand steps: exactly 0.",
        {"log_p": floats([log("1/1000")] * 1000), "log_prior": floats([log("1/1000")] * 1000)},
        result=[0],
    )
    add(
        "batch-2d",
        "A batch of two axes and an [N] prior, logarithms rounded to bfloat16.",
        {
            "log_p": floats([[HALF_LOGS[1:3], [HALF_LOGS[3], 0.0]], [HALF_LOGS[3:1:-1], [HALF_LOGS[1], -inf]]]),
            "log_prior": floats(HALF_LOGS[1:4:2]),
        },
        spec=["L2", "B8"],
    )
    return book


def books() -> list[Book]:
    """The cases of the priors and the KL."""
    return [_geometric(), *_others(), _kl()]
