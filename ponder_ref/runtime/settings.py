"""What a training is made of beside its model, as plain values: method and optimiser (spec models.md, optim.md)."""

from dataclasses import dataclass

from ponder_ref import checks


@dataclass(frozen=True)
class Method:
    """How the model ponders: PonderNet, or one of the baselines (M1 to M4; "ut-act" of M9), and its price."""

    name: str = "ponder"
    max_steps: int = 20
    min_steps: int = 2
    remainder: str = "last"
    epsilon: float | None = None
    lambda_p: float = 0.2
    beta: float = 0.01
    tau: float = 0.001
    act_epsilon: float = 0.01

    def __post_init__(self):
        min_steps = min(self.min_steps, self.max_steps) if isinstance(self.max_steps, int) else self.min_steps
        limits = (self.epsilon, self.remainder, self.act_epsilon)
        checks.check_pondering(self.max_steps, self.name, min_steps, *limits, checks.TRAINED_METHODS)
        checks.check_prices(self.lambda_p, self.beta, self.tau)

    def pondering(self) -> dict:
        """The arguments of `ponder`."""
        return {
            "max_steps": self.max_steps,
            "method": self.name,
            "min_steps": min(self.min_steps, self.max_steps),
            "epsilon": self.epsilon,
            "remainder": self.remainder,
            "act_epsilon": self.act_epsilon,
        }

    def evaluation(self) -> dict:
        """The arguments of an unroll for evaluation but for its steps: all of them, halting being judged afterwards."""
        by_row = self.name == "ut-act"  # there halting decides what a step sees
        return {"method": "ut-act" if by_row else "repeat", "act_epsilon": self.act_epsilon}


@dataclass(frozen=True)
class Optimiser:
    """Adam for all parameters, or Muon for the model's matrices and Adam for the rest (O1 to O5)."""

    name: str = "adam"
    learning_rate: float = 3e-4
    total: int = 100_000
    warmup: int = 0
    hold: int = 0
    decay: str = "constant"
    end: float = 0.0
    weight_decay: float = 0.0
    clip: float | None = None
    matrix_learning_rate: float | None = None

    def __post_init__(self):
        checks.check_choice("name", self.name, ("adam", "muon"))
        checks.check_choice("decay", self.decay, ("constant", "linear", "cosine", "polynomial"))
        checks.check_number("learning_rate", self.learning_rate, "[0, inf)")
        checks.check_count("total", self.total, 1)
        checks.check_count("warmup", self.warmup, 0, self.total - 1)
        if self.hold:
            checks.check_count("hold", self.hold, self.warmup, self.total - 1)
        for name in ("end", "weight_decay"):
            checks.check_number(name, getattr(self, name), "[0, inf)")
        if self.clip is not None:
            checks.check_number("clip", self.clip, "(0, inf)")
        if self.matrix_learning_rate is not None:
            checks.check_number("matrix_learning_rate", self.matrix_learning_rate, "[0, inf)")
