"""The settings that every task has: halting, optimiser, training. A task's config adds its own fields by inheriting.

The numbers named "paper" are those of its appendix on the parity task.
"""

import dataclasses

from ponder_ref.checks import SettingError
from ponder_ref.runtime.errors import Refused
from ponder_ref.runtime.settings import TRAINING, Halting, Optimiser
from ponder_ref.runtime.values import Choice, Integer, Text, again, option, part_of
from tasks.flags import by_flag, flag

MAX_SEED = 2**63 - 1


@dataclasses.dataclass(frozen=True)
class TrainingConfig(Optimiser, Halting):
    """Everything that decides the numbers of a run, apart from what is particular to a task."""

    matrix_learning_rate: float | None = again(Optimiser, "matrix_learning_rate", default=4e-3)

    batch_size: int = option(128, Integer(1, 65536), "examples per update", group=TRAINING, paper="128")
    start: str | None = option(
        None,
        Text(off=True),
        "run or checkpoint whose parameters it begins with; moments and learning rates start from the beginning",
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
        """What must fit together across fields, with the flags that it is about."""
        if self.warmup >= self.updates:
            raise Refused(f"--warmup must be smaller than --updates {self.updates}, got {self.warmup}")
        if self.hold and not self.warmup <= self.hold < self.updates:
            raise Refused(
                f"--hold must be 0 or lie in {self.warmup}..{self.updates - 1} (--warmup, --updates), got {self.hold}"
            )
        if self.epsilon is not None and self.min_steps > self.max_steps:
            raise Refused(f"--min-steps must lie in 1..{self.max_steps} (--max-steps), got {self.min_steps}")
        try:
            self.halting()
            self.optimiser_settings()
        except SettingError as error:
            raise by_flag(error) from None

    @property
    def own_steps(self) -> int:
        """How many steps the method runs at most."""
        return 1 if self.method == "once" else self.max_steps

    def halting(self) -> Halting:
        return Halting(**part_of(self, Halting))

    def optimiser_settings(self) -> Optimiser:
        return Optimiser(**part_of(self, Optimiser))


def first_difference(old: object, new: object) -> str | None:
    """The first field in which two configs of one class differ, as a flag with both values."""
    for field in dataclasses.fields(old):  # type: ignore[arg-type]
        before, after = getattr(old, field.name), getattr(new, field.name)
        if before != after:
            return f"{flag(field.name)} is {before} there and {after} here"
    return None
