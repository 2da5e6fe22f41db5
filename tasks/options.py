"""The settings that every task has: method, optimiser, training. A task's config adds its own fields by inheriting.

The numbers named "paper" are those of its appendix on the parity task.
"""

import dataclasses

from ponder_ref.runtime.errors import Refused
from ponder_ref.runtime.settings import Method, Optimiser
from tasks.config import Choice, Integer, Number, Text, flag, option

HALTING = "halting"
OPTIMISER = "optimiser"
TRAINING = "training"
MAX_SEED = 2**63 - 1


@dataclasses.dataclass(frozen=True)
class TrainingConfig:
    """Everything that decides the numbers of a run, apart from what is particular to a task."""

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
    lambda_p: float = option(
        0.2,
        Number("(0, 1)"),
        "ponder: parameter of the geometric prior, 1/mean steps",
        group=HALTING,
        paper="ten values",
    )
    beta: float = option(0.01, Number("[0, 100]"), "ponder: weight of the KL", group=HALTING, paper="0.01")
    tau: float = option(
        0.001, Number("[0, 100]"), "act: price of a step", group=HALTING, paper="0 and 19 values in 2e-4 to 2e-2"
    )
    act_epsilon: float = option(0.01, Number("(0, 1)"), "act: halt once the sum of λ is 1 − this", group=HALTING)

    optimiser: str = option(
        "adam", Choice(("adam", "muon")), "muon: Muon for matrices, Adam for the rest", group=OPTIMISER, paper="adam"
    )
    learning_rate: float = option(3e-4, Number("(0, 10]"), "of Adam", group=OPTIMISER, paper="3e-4")
    matrix_learning_rate: float = option(4e-3, Number("(0, 10]"), "of Muon, for matrices", group=OPTIMISER)
    warmup: int = option(0, Integer(0, 10**9), "updates over which the learning rate rises", group=OPTIMISER)
    hold: int = option(
        0, Integer(0, 10**9), "updates before the decay begins, 0 is from the warm-up's end on", group=OPTIMISER
    )
    decay: str = option(
        "constant",
        Choice(("constant", "linear", "cosine")),
        "course of the learning rate; all but constant fall to 0 after the last update",
        group=OPTIMISER,
        paper="constant",
    )
    weight_decay: float = option(0.0, Number("[0, 1]"), "decoupled weight decay", group=OPTIMISER)
    clip: float | None = option(
        None, Number("(0, 1e6]", off=True), "largest norm of the gradient over all parameters", group=OPTIMISER
    )

    batch_size: int = option(128, Integer(1, 65536), "examples per update", group=TRAINING, paper="128")
    updates: int = option(100_000, Integer(1, 10**9), "number of updates", group=TRAINING)
    start: str | None = option(
        None,
        Text(off=True),
        "run or checkpoint whose parameters it begins with; moments and rates begin anew",
        group=TRAINING,
    )
    seed: int = option(0, Integer(0, MAX_SEED), "of everything drawn: parameters, data, sampled steps", group=TRAINING)
    dtype: str = option("float32", Choice(("float32", "float64")), "of the parameters", group=TRAINING)
    chunk: int = option(
        50, Integer(1, 10_000), "updates per call of the backend; should divide the periods below", group=TRAINING
    )
    log_every: int = option(100, Integer(1, 10**9), "updates per line of training metrics", group=TRAINING)
    eval_every: int = option(1000, Integer(1, 10**9), "updates between evaluations", group=TRAINING)
    eval_examples: int = option(2048, Integer(1, 10**7), "examples of an evaluation", group=TRAINING)
    test_examples: int | None = option(
        None,
        Integer(1, 10**7, off=True),
        "examples of the test at the end, off is as many as of an evaluation",
        group=TRAINING,
    )
    checkpoint_every: int = option(1000, Integer(1, 10**9), "updates between checkpoints", group=TRAINING)

    @property
    def periods(self) -> tuple[int, ...]:
        """A call of the backend ends at every multiple of one of these."""
        return self.chunk, self.log_every, self.eval_every, self.checkpoint_every

    @property
    def ends_with_test(self) -> bool:
        """Whether a training ends with a test."""
        return True

    def __post_init__(self) -> None:
        """What must fit together across fields."""
        if self.warmup >= self.updates:
            raise Refused(f"--warmup must be smaller than --updates {self.updates}, got {self.warmup}")
        if self.hold and not self.warmup <= self.hold < self.updates:
            raise Refused(
                f"--hold must be 0 or lie in {self.warmup}..{self.updates - 1} (--warmup, --updates), got {self.hold}"
            )
        if self.epsilon is not None and self.min_steps > self.max_steps:
            raise Refused(f"--min-steps must lie in 1..{self.max_steps} (--max-steps), got {self.min_steps}")
        try:
            self.method_settings()
            self.optimiser_settings()
        except ValueError as error:  # a range that the backends' settings know and this page does not
            name, _, rest = str(error).partition(" ")
            raise Refused(f"{flag(name) if hasattr(self, name) else name} {rest}") from None

    @property
    def own_steps(self) -> int:
        """How many steps the method runs at most."""
        return 1 if self.method == "once" else self.max_steps

    def method_settings(self) -> Method:
        return Method(
            name=self.method,
            max_steps=self.max_steps,
            min_steps=min(self.min_steps, self.max_steps),
            remainder=self.remainder,
            epsilon=self.epsilon,
            lambda_p=self.lambda_p,
            beta=self.beta,
            tau=self.tau,
            act_epsilon=self.act_epsilon,
        )

    def optimiser_settings(self) -> Optimiser:
        return Optimiser(
            name=self.optimiser,
            learning_rate=self.learning_rate,
            total=self.updates,
            warmup=self.warmup,
            hold=self.hold,
            decay=self.decay,
            weight_decay=self.weight_decay,
            clip=self.clip,
            matrix_learning_rate=self.matrix_learning_rate if self.optimiser == "muon" else None,
        )


def first_difference(old: object, new: object) -> str | None:
    """The first field in which two configs of one class differ, as a flag with both values."""
    for field in dataclasses.fields(old):  # type: ignore[arg-type]
        before, after = getattr(old, field.name), getattr(new, field.name)
        if before != after:
            return f"{flag(field.name)} is {before} there and {after} here"
    return None
