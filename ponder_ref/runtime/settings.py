"""What a training is made of beside its model, as plain values: method and optimiser (spec models.md, optim.md)."""

from dataclasses import dataclass

from ponder_ref import checks
from ponder_ref.priors import PRIORS


@dataclass(frozen=True)
class Halting:
    """How a network ponders: PonderNet, or one of the baselines (M1 to M4; "ut-act" of M9), and its price.

    The fields are the arguments of `PonderNet` of the same names: `PonderNet(step, **asdict(halting))`.
    """

    method: str = "ponder"
    max_steps: int = 20
    min_steps: int = 2
    remainder: str = "last"
    epsilon: float | None = None
    prior: str = "geometric"
    lambda_p: float = 0.2
    beta: float = 0.01
    tau: float = 0.001
    act_epsilon: float = 0.01

    def __post_init__(self):
        min_steps = min(self.min_steps, self.max_steps) if isinstance(self.max_steps, int) else self.min_steps
        object.__setattr__(self, "min_steps", min_steps)  # PonderNet takes no more than max_steps
        limits = (self.epsilon, self.remainder, self.act_epsilon)
        checks.check_pondering(self.max_steps, self.method, min_steps, *limits, checks.TRAINED_METHODS)
        checks.check_choice("prior", self.prior, tuple(PRIORS))
        checks.check_prices(self.lambda_p, self.beta, self.tau)


@dataclass(frozen=True)
class Optimiser:
    """Adam for all parameters, or Muon for the network's matrices and Adam for the rest (O1 to O5).

    `updates` is the length of the training, over which the learning rate takes its course.
    """

    optimiser: str = "adam"
    learning_rate: float = 3e-4
    matrix_learning_rate: float | None = None
    updates: int = 100_000
    warmup: int = 0
    hold: int = 0
    decay: str = "constant"
    weight_decay: float = 0.0
    clip: float | None = None

    def __post_init__(self):
        checks.check_choice("optimiser", self.optimiser, ("adam", "muon"))
        checks.check_choice("decay", self.decay, ("constant", "linear", "cosine", "polynomial"))
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
