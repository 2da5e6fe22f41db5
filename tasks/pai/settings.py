"""Settings and presets of the experiment on paired associative inference (paper §3.3 and app. D)."""

import dataclasses
from typing import Any

from ponder_ref.checks import SettingError
from ponder_ref.models.pairs import PairTransformer
from ponder_ref.runtime.errors import Refused
from ponder_ref.runtime.settings import Halting, Optimiser
from ponder_ref.runtime.values import Choice, Integer, Number, Text, again, option
from tasks.config import TrainingConfig
from tasks.flags import by_flag
from tasks.pai.data import TARGETS

DATA, MODEL = "data", "Transformer"
CONTROLS = ("no-memory", "shuffled-memory")
SIZES = ("embedding", "attention", "heads", "transition", "layers", "dropout", "memory")


@dataclasses.dataclass(frozen=True)
class PaiConfig(TrainingConfig):
    """Settings of a run."""

    max_steps: int = again(Halting, "max_steps", default=10, paper="7 to 10")
    lambda_p: float = again(Halting, "lambda_p", paper="in (0, 0.5]")
    length: int = option(3, Integer(3, 5), "images in a sequence", group=DATA, paper="3")
    target: str = option(
        "side", Choice(TARGETS), "what is asked: the side of the match, or its class", group=DATA, paper="class"
    )
    data_dir: str | None = option(
        None, Text(off=True), "folder of the released files with train, valid and test, off is generated", group=DATA
    )
    embeddings: str | None = option(
        None, Text(off=True), ".npy file of one's own embedded images [images, width]", group=DATA
    )
    labels: str | None = option(None, Text(off=True), "with --embeddings: .npy file of their classes", group=DATA)
    control: str = option(
        "none",
        Choice(("none", *CONTROLS)),
        "what evaluations see: the memory, none, or another example's; with none a run ends with all three",
        group=DATA,
    )
    embedding: int = option(256, Integer(1, 4096), "width of the states", group=MODEL, paper="256")
    attention: int = option(512, Integer(1, 4096), "width of all heads together", group=MODEL, paper="512, or 256")
    heads: int = option(8, Integer(1, 64), "heads of the attention", group=MODEL, paper="8")
    transition: int = option(
        128, Integer(1, 8192), "width of the transition's hidden layers", group=MODEL, paper="128, or 1024"
    )
    layers: int = option(2, Integer(1, 16), "hidden layers of the transition", group=MODEL, paper="2")
    dropout: float = option(
        0.1, Number("[0, 1)"), "share of the attention weights left out in training", group=MODEL, paper="0.1"
    )
    memory: str = option(
        "none", Choice(("none", "xl")), "xl: the encoder also sees the states of the step before", group=MODEL
    )
    tied_output: str = option(
        "off",
        Choice(("off", "on")),
        "on, with --target class: number j of an image is a score of class j, with which the answer begins",
        group=MODEL,
    )
    decay: str = again(Optimiser, "decay", paper="polynomial")
    test_examples: int | None = again(
        TrainingConfig,
        "test_examples",
        default=10_000,
        help="examples of the test at the end, off is no test",
        paper="600",
    )

    @property
    def ends_with_test(self) -> bool:
        """Not with --test-examples off: the files of a test may be held back."""
        return self.test_examples is not None

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.embeddings is None) != (self.labels is None):
            raise Refused("--embeddings and --labels go together, got one of them")
        if self.data_dir is not None and self.embeddings is not None:
            raise Refused("--data-dir and --embeddings are two sources of images, got both")
        if self.data_dir is not None and self.target != "side":
            raise Refused(f"--target must be side with --data-dir: the files have no classes, got {self.target!r}")
        if self.tied_output == "on" and self.target != "class":
            raise Refused(f"--tied-output on goes with --target class: it is about classes, got {self.target!r}")
        if self.tied_output == "on" and self.start is not None:
            raise Refused("--tied-output on is about initial values, and --start has others, got both")
        try:
            self.model_settings()
        except SettingError as error:
            raise by_flag(error) from None

    def model_settings(self, **data: Any) -> PairTransformer:
        """The model for images of a `width` and so many `outputs`."""
        return PairTransformer(steps=self.max_steps, **{name: getattr(self, name) for name in SIZES}, **data)


SMALL = {
    "embedding": 128,
    "attention": 128,
    "transition": 128,
    "heads": 4,
    "max_steps": 7,
    "batch_size": 64,
    "dropout": 0.0,
    "lambda_p": 0.25,
    "beta": 0.05,
    "optimiser": "muon",
    "learning_rate": 3e-3,
    "matrix_learning_rate": 8e-3,
    "clip": 1.0,
    "decay": "linear",
    "chunk": 10,
}
EPOCH = 163  # updates that show a million images, as many as there are for training: 128 memories of 48 in each
DEFAULT: dict[str, Any] = {
    **SMALL,
    "warmup": 100,
    "updates": 2000,
    "log_every": 50,
    "eval_every": 250,
    "eval_examples": 1024,
    "checkpoint_every": 250,
}
PRESETS: dict[str, dict[str, Any]] = {
    "default": DEFAULT,
    "class": {  # a thousand answers are learnt slowly: more updates, and ε leaves out steps that no example needs
        **DEFAULT,
        "target": "class",
        "tied_output": "on",
        "epsilon": 0.001,
        "updates": 15_000,
        "eval_every": 1500,
        "eval_examples": 2048,
        "checkpoint_every": 1500,
    },
    "smoke": {
        **SMALL,
        "embedding": 32,
        "attention": 32,
        "transition": 32,
        "heads": 2,
        "max_steps": 3,
        "batch_size": 16,
        "updates": 40,
        "log_every": 20,
        "eval_every": 20,
        "eval_examples": 128,
        "test_examples": 640,
        "checkpoint_every": 20,
    },
    "paper": {
        "decay": "polynomial",
        "warmup": EPOCH,
        "updates": 100_000,
        "chunk": 5,
        "log_every": 50,
        "eval_every": 500,
        "checkpoint_every": 500,
    },
}
