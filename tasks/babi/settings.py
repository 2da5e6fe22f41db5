"""Settings and presets of the bAbI experiment (paper §3.2 and app. C)."""

import dataclasses
import math
from typing import Any

from ponder_ref.checks import SettingError, quoted
from ponder_ref.models.transformer import Transformer
from ponder_ref.runtime.errors import Refused
from ponder_ref.runtime.settings import Halting, Optimiser
from ponder_ref.runtime.values import Choice, Integer, Number, Text, again, option
from tasks.babi.encode import CLASSES, MAX_SENTENCES
from tasks.babi.files import LAYOUTS
from tasks.babi.generate import parse_tasks
from tasks.babi.vocabulary import MAX_WORDS, WORDS
from tasks.config import TrainingConfig
from tasks.flags import by_flag

DATA, MODEL = "bAbI data", "Universal Transformer"
ANY = "any"  # of the layouts


@dataclasses.dataclass(frozen=True)
class BabiConfig(TrainingConfig):
    """Settings of a bAbI run."""

    method: str = again(
        Halting,
        "method",
        values=Choice(("ponder", "act", "ut-act", "repeat", "once")),
        help="who decides the number of steps; ut-act: each sentence for itself, as in the Universal Transformer",
    )
    max_steps: int = again(Halting, "max_steps", default=10, paper="10")
    tasks: str = option("1-20", Text(), "which of the twenty tasks, such as 1-20 or 1,2,15", group=DATA, paper="1-20")
    more: str | None = option(
        None, Text(off=True), "tasks drawn more often in training, such as 3:2,16:3; the others have 1", group=DATA
    )
    data_dir: str | None = option(
        None, Text(off=True), "folder or .tar.gz with the released files, off is generated stories", group=DATA
    )
    layout: str = option(
        ANY,
        Choice((ANY, *LAYOUTS)),
        "which of the released sets in --data-dir; any: files right in the folder, or the first of these that is there",
        group=DATA,
        paper="en-10k",
    )
    questions: int = option(
        10_000,
        Integer(20, 10**6),
        "generated questions for training, per task and set",
        group=DATA,
        paper="10,000",
    )
    sets: str = option(
        "by-share",
        Choice(("by-share", "even")),
        "whether tasks of --more have as many more questions in a set, or all the same number",
        group=DATA,
    )
    renew: int | None = option(
        None, Integer(1, 10**9, off=True), "updates after which a new set is generated, off is one set", group=DATA
    )
    held_out: int = option(
        1000, Integer(1, 10**5), "generated questions for validation and for test, per task", group=DATA
    )
    embedding: int = option(128, Integer(1, 4096), "width of the states", group=MODEL, paper="128")
    attention: int = option(512, Integer(1, 4096), "width of all heads together", group=MODEL, paper="512, or 128")
    heads: int = option(8, Integer(1, 64), "heads of the attention", group=MODEL, paper="8")
    transition: int = option(
        128, Integer(1, 8192), "width of the transition's hidden layer", group=MODEL, paper="128, or 512"
    )
    dropout: float = option(
        0.1, Number("[0, 1)"), "share of the attention weights left out in training", group=MODEL, paper="0.1"
    )
    sentences: int = option(
        MAX_SENTENCES, Integer(1, MAX_SENTENCES), "longest story, older sentences are cut", group=MODEL, paper="320"
    )
    eval_examples: int = again(
        TrainingConfig,
        "eval_examples",
        default=2000,
        values=Integer(20, 10**7),
        help="questions of an evaluation, of all tasks",
    )
    test_examples: int | None = again(
        TrainingConfig,
        "test_examples",
        default=10**5,
        values=Integer(20, 10**7, off=True),
        help="questions of the test at the end, if there are so many; off is no test",
    )
    learning_rate: float = again(Optimiser, "learning_rate", paper="3e-4, or 1e-4 to 5e-4")

    @property
    def ends_with_test(self) -> bool:
        """Not with --test-examples off: the files of a test may be held back."""
        return self.test_examples is not None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.task_numbers()
        self.shares()
        try:
            self.model_settings()
        except SettingError as error:
            raise by_flag(error) from None

    def task_numbers(self) -> tuple[int, ...]:
        return parse_tasks(self.tasks, "--tasks")

    def shares(self) -> dict[int, float]:
        """How often the tasks of --more are drawn, for once that another is."""
        found: dict[int, float] = {}
        for part in (self.more or "").split(",") if self.more else ():
            number, _, times = part.partition(":")
            try:
                task, share = int(number), float(times)
            except ValueError:
                raise Refused(f"--more must look like 3:2,16:3, got {quoted(part)}") from None
            if task not in self.task_numbers() or not 0 < share <= 100:
                raise Refused(f"--more takes tasks of --tasks, each with a number in (0, 100], got {quoted(part)}")
            if task in found:
                raise Refused(f"--more names task {task} twice, got {quoted(self.more)}")
            found[task] = share
        return found

    def question_counts(self) -> dict[int, int]:
        """Generated questions of each task in a set; with few of a task that is drawn often it is learnt by heart."""
        shares = self.shares() if self.sets == "by-share" else {}
        return {task: math.ceil(self.questions * shares.get(task, 1.0)) for task in self.task_numbers()}

    def model_settings(self) -> Transformer:
        sizes = {
            name: getattr(self, name)
            for name in ("embedding", "attention", "heads", "transition", "dropout", "sentences")
        }
        return Transformer(vocabulary=len(WORDS), outputs=CLASSES, tokens=MAX_WORDS, steps=self.max_steps, **sizes)


SMALL = {
    "attention": 128,
    "transition": 256,
    "max_steps": 6,
    "lambda_p": 0.3,
    "optimiser": "muon",
    "learning_rate": 1e-3,
    "matrix_learning_rate": 5e-3,
    "clip": 1.0,
    "dropout": 0.0,
    "sentences": 64,  # no support of an answer lies further back, and a batch with rows of 320 takes twice as long
    "chunk": 10,
    "log_every": 50,
}
LONG = {
    **SMALL,
    "batch_size": 64,
    "questions": 6000,
    "renew": 2500,
    "eval_every": 1000,
    "checkpoint_every": 1000,
}
# Task 16 is learnt last, and only where it fills much of a batch: `solve` leaves it to `finish`, which begins with
# the parameters of `solve`.
PRESETS: dict[str, dict[str, Any]] = {
    "default": {
        **SMALL,
        "batch_size": 64,
        "updates": 2000,
        "decay": "linear",
        "eval_every": 250,
        "checkpoint_every": 250,
    },
    "smoke": {
        **SMALL,
        "tasks": "1,6,15,20",
        "questions": 200,
        "held_out": 20,
        "embedding": 32,
        "attention": 32,
        "transition": 64,
        "max_steps": 3,
        "batch_size": 32,
        "updates": 60,
        "log_every": 20,
        "eval_every": 30,
        "eval_examples": 80,
        "checkpoint_every": 30,
    },
    "solve": {**LONG, "more": "2:2,3:4,16:8,17:4,18:2,19:4", "updates": 20_000, "warmup": 500},
    "finish": {
        **LONG,
        "more": "3:2,7:2,16:16,17:2,18:2",
        "updates": 12_000,
        "warmup": 100,
        "hold": 6000,
        "decay": "linear",
    },
    "paper": {"updates": 2_000_000, "chunk": 10, "eval_every": 1000, "checkpoint_every": 1000},
}
