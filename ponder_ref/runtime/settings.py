"""What a training is made of beside its model, as plain values: halting and optimiser (spec models.md, annex/optim.md).

Help and ranges are for command lines; a library's caller may go beyond these ranges, as far as the mathematics goes.
"""

from dataclasses import dataclass

from ponder_ref import checks
from ponder_ref.priors import PRIORS
from ponder_ref.runtime.values import Choice, Integer, Number, option

HALTING, OPTIMISER, TRAINING = "halting", "optimiser", "training"  # groups of a command line's help
OPTIMISERS, DECAYS = ("adam", "muon"), ("constant", "linear", "cosine", "polynomial")


@dataclass(frozen=True)
class Halting:
    """How a network ponders: PonderNet, a baseline (M1 to M4) or a method of the step network's own, and its price.

    The fields are the arguments of `PonderNet` of the same names: `PonderNet(step, **asdict(halting))`.
    """

    method: str = option(
        "ponder", Choice(("ponder", "act", "repeat", "once")), "who decides the number of steps", group=HALTING
    )
    max_steps: int = option(20, Integer(1, 1000), "largest number of steps N", group=HALTING, paper="20")
    min_steps: int = option(
        2, Integer(1, 1000), "ponder with --epsilon: fewest steps of an example in training", group=HALTING
    )
    remainder: str = option(
        "last", Choice(("last", "normalize")), "ponder: where the mass left after N goes", group=HALTING
    )
    epsilon: float | None = option(
        None,
        Number("(0, 1)", off=True),
        "ponder: training stops an example's steps once less than this mass is left",
        group=HALTING,
        paper="0.05 in §2.3, off for parity",
    )
    prior: str = option(
        "geometric",
        Choice(tuple(PRIORS)),
        "ponder: the distribution of steps that the KL is measured against",
        group=HALTING,
        paper="geometric",
    )
    lambda_p: float = option(
        0.2,
        Number("(0, 1)"),
        "ponder: parameter of the prior, 1/mean steps",
        group=HALTING,
        paper="ten values",
    )
    beta: float = option(0.01, Number("[0, 100]"), "ponder: weight of the KL", group=HALTING, paper="0.01")
    tau: float = option(
        0.001, Number("[0, 100]"), "act: price of a step", group=HALTING, paper="0 and 19 values in 2e-4 to 2e-2"
    )
    act_epsilon: float = option(0.01, Number("(0, 1)"), "act: halt once the sum of λ is 1 − this", group=HALTING)

    def __post_init__(self) -> None:
        min_steps = min(self.min_steps, self.max_steps) if isinstance(self.max_steps, int) else self.min_steps
        object.__setattr__(self, "min_steps", min_steps)  # PonderNet takes no more than max_steps
        checks.check_word("method", self.method)  # which there are, the step network says as well
        limits = (self.epsilon, self.remainder, self.act_epsilon)
        checks.check_count("max_steps", self.max_steps, 1, checks.MOST_STEPS)
        checks.check_pondering(self.max_steps, self.method, min_steps, *limits, (self.method,))
        checks.check_choice("prior", self.prior, tuple(PRIORS))
        checks.check_prices(self.lambda_p, self.beta, self.tau)


@dataclass(frozen=True)
class Optimiser:
    """Adam for all parameters, or Muon for the network's matrices and Adam for the rest (O1 to O5).

    `updates` is the length of the training, over which the learning rate takes its course. The matrices' rate is
    `learning_rate` where it is None.
    """

    optimiser: str = option(
        "adam", Choice(OPTIMISERS), "muon: Muon for matrices, Adam for the rest", group=OPTIMISER, paper="adam"
    )
    learning_rate: float = option(3e-4, Number("(0, 10]"), "of Adam", group=OPTIMISER, paper="3e-4")
    matrix_learning_rate: float | None = option(None, Number("(0, 10]"), "of Muon, for matrices", group=OPTIMISER)
    warmup: int = option(0, Integer(0, 10**9), "updates over which the learning rate rises", group=OPTIMISER)
    hold: int = option(
        0, Integer(0, 10**9), "updates before the decay begins, 0 is from the warm-up's end on", group=OPTIMISER
    )
    decay: str = option(
        "constant",
        Choice(DECAYS),
        "course of the learning rate; all but constant fall to 0 after the last update, polynomial with power 1",
        group=OPTIMISER,
        paper="constant",
    )
    weight_decay: float = option(0.0, Number("[0, 1]"), "decoupled weight decay", group=OPTIMISER)
    clip: float | None = option(
        None, Number("(0, 1e6]", off=True), "largest norm of the gradient over all parameters", group=OPTIMISER
    )
    updates: int = option(100_000, Integer(1, 10**9), "number of updates", group=TRAINING)

    def __post_init__(self) -> None:
        checks.check_choice("optimiser", self.optimiser, OPTIMISERS)
        checks.check_choice("decay", self.decay, DECAYS)
        checks.check_number("learning_rate", self.learning_rate, "[0, inf)")
        checks.check_count("updates", self.updates, 1)
        checks.check_count("warmup", self.warmup, 0, self.updates - 1)
        if self.hold:
            checks.check_count("hold", self.hold, self.warmup, self.updates - 1)
        checks.check_number("weight_decay", self.weight_decay, "[0, inf)")
        if self.clip is not None:
            checks.check_number("clip", self.clip, "(0, inf)")
        if self.matrix_learning_rate is not None:
            checks.check_number("matrix_learning_rate", self.matrix_learning_rate, "[0, inf)")
