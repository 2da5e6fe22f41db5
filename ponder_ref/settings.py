"""What a training is made of, as plain values: the model, the method, the optimiser (spec models.md, optim.md)."""

from dataclasses import dataclass

from ponder_ref import checks


def check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}, got {checks.quoted(value)}")


@dataclass(frozen=True)
class Model:
    """The RNN of the parity experiment (M8)."""

    kind: str = "rnn"
    inputs: int = 64
    hidden: int = 128
    outputs: int = 1
    output: str = "binary"  # or "classes"

    def __post_init__(self):
        check_choice("kind", self.kind, ("rnn",))
        check_choice("output", self.output, ("binary", "classes"))
        for name in ("inputs", "hidden", "outputs"):
            checks.check_count(name, getattr(self, name), 1)
        if self.output == "classes" and self.outputs == 1:
            raise ValueError('outputs must be at least 2 where output is "classes", got 1')


@dataclass(frozen=True)
class Transformer:
    """The Universal Transformer of M9, by default at the sizes of the paper's bAbI experiment (app. C).

    Words are 1..vocabulary, 0 is padding; an input has at most `sentences` sentences and a question, of at most
    `tokens` words each. `attention` is the width of all heads together, `transition` that of each of the `layers`
    hidden layers. `steps` is the number of step signals.
    """

    kind: str = "transformer"
    vocabulary: int = 145
    outputs: int = 60
    tokens: int = 11
    sentences: int = 320
    embedding: int = 128
    attention: int = 512
    heads: int = 8
    transition: int = 128
    layers: int = 1
    steps: int = 10
    dropout: float = 0.1
    output: str = "classes"

    def __post_init__(self):
        check_choice("kind", self.kind, ("transformer",))
        check_choice("output", self.output, ("classes",))
        for name in ("vocabulary", "tokens", "sentences", "embedding", "attention", "heads", "transition"):
            checks.check_count(name, getattr(self, name), 1)
        checks.check_count("outputs", self.outputs, 2)
        checks.check_count("layers", self.layers, 1)
        checks.check_count("steps", self.steps, 1)
        if self.attention % self.heads:
            raise ValueError(f"attention must be a multiple of heads, got {self.attention} and {self.heads}")
        checks.check_number("dropout", self.dropout, "[0, 1)")


@dataclass(frozen=True)
class PairTransformer:
    """The Transformer of M10, by default at the sizes of the paper's experiment on associative inference (app. D).

    Images have `width` numbers. `attention` is the width of all heads together, `transition` that of each of the
    `layers` hidden layers, `steps` the number of step signals. With memory "xl" the encoder also sees the states of
    the step before.
    """

    kind: str = "pairs"
    width: int = 1000
    outputs: int = 2
    embedding: int = 256
    attention: int = 512
    heads: int = 8
    transition: int = 128
    layers: int = 2
    steps: int = 10
    dropout: float = 0.1
    memory: str = "none"
    output: str = "classes"

    def __post_init__(self):
        check_choice("kind", self.kind, ("pairs",))
        check_choice("output", self.output, ("classes",))
        check_choice("memory", self.memory, ("none", "xl"))
        for name in ("width", "embedding", "attention", "heads", "transition", "layers", "steps"):
            checks.check_count(name, getattr(self, name), 1)
        checks.check_count("outputs", self.outputs, 2)
        if self.attention % self.heads:
            raise ValueError(f"attention must be a multiple of heads, got {self.attention} and {self.heads}")
        checks.check_number("dropout", self.dropout, "[0, 1)")


AnyModel = Model | Transformer | PairTransformer


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
        check_choice("name", self.name, ("adam", "muon"))
        check_choice("decay", self.decay, ("constant", "linear", "cosine", "polynomial"))
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
