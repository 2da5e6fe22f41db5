"""What a network is, in plain values and without its task: enough to build it again on any backend."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ponder_ref import checks, models
from ponder_ref.runtime.errors import on_one_line
from ponder_ref.runtime.settings import Halting

OWN = "own"


@dataclass(frozen=True)
class Problem:
    """What a network is built for: `build(problem)` returns a PonderNet.

    inputs: one example's input as the task gives it, a tree of `Leaf`; the batch axis comes in front of every shape.
    outputs: how many numbers an answer's prediction has: 1 for "binary", else the number of classes.
    output: "binary" (one logit per answer) or "classes" (a logit per class and answer).
    answers: the shape of one example's answers, `()` for a single one.
    seed: of the initial parameters.
    halting: the arguments of PonderNet that the command line sets: `PonderNet(step, ..., **problem.halting)`.

    Of a network that was saved without a task, inputs, outputs, output and answers are not known: they are None.
    """

    inputs: Any
    outputs: Any  # int or None; who builds for a task need not ask which
    output: str | None
    answers: tuple[int, ...] | None
    seed: int
    halting: dict[str, Any]


@dataclass(frozen=True)
class Leaf:
    """Shape and dtype of an array of one example."""

    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class Own:
    """A network of somebody's own, as a run notes it. Its code is given again whenever it is needed, never imported.

    `name` is what the command line called it (my_net.py:build), `sha256` the checksum of that file; "" if a task brings
    the network: then the name, of the task's file for a backend, is what it is known by.
    What is not known of a network that had no task is None.
    """

    name: str
    sha256: str = ""
    inputs: Any = None
    outputs: int | None = None
    output: str | None = None
    answers: tuple[int, ...] | None = None  # of a known output a single one, ()
    seed: int = 0
    kind: str = OWN

    def __post_init__(self) -> None:
        for name in ("name", "sha256"):
            if not (isinstance(value := getattr(self, name), str) and value.isprintable()):
                raise checks.SettingError(name, f"must be text that can be printed, got {checks.quoted(value)}")
        if self.output is not None:
            checks.check_choice("output", self.output, ("binary", "classes"))
        if self.outputs is not None:
            checks.check_count("outputs", self.outputs, 1)
        checks.check_count("seed", self.seed, 0)
        if self.answers is None and self.output is not None:
            object.__setattr__(self, "answers", ())
        for size in self.answers or ():
            checks.check_count("answers", size, 1)

    def problem(self, halting: Halting) -> Problem:
        """What `build` is given, as it was when the run began."""
        same = {name: getattr(self, name) for name in ("inputs", "outputs", "output", "answers", "seed")}
        return Problem(**same, halting=dataclasses.asdict(halting))

    def with_masks(self, inputs: Any, seed: int, updates: Sequence[int], steps: int) -> Any:
        """The inputs as they are: what is random in somebody's own network is its own affair."""
        return inputs


@dataclass(frozen=True)
class Network:
    """A network of the paper (`ponder_ref.models`) or somebody's own, and how it ponders."""

    model: Any  # settings of a network of the paper, or Own
    halting: Halting

    @property
    def is_own(self) -> bool:
        return self.model.kind == OWN

    def check_built(self, found: Halting) -> None:
        """Refuses what `build` made if it ponders in another way than is described."""
        for name, value, wanted in differing(found, dataclasses.asdict(self.halting)):
            said = f"must return a PonderNet with {name} {wanted!r}, as the network is described, got {value!r}"
            raise ValueError(f"build {said}: it should be PonderNet(step, ..., **problem.halting)")

    def to_json(self) -> dict[str, Any]:
        """Plain values; `from_json` gives back an equal description."""
        model = dataclasses.asdict(self.model)
        if self.is_own:
            inputs, answers = self.model.inputs, self.model.answers
            model |= {"inputs": None if inputs is None else to_plain(inputs)}
            model |= {"answers": None if answers is None else list(answers)}
        return {"model": model, "halting": dataclasses.asdict(self.halting)}


def differing(found: Halting, wanted: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """(name, found, wanted) of each number of halting that is not as wanted."""
    for name, value in wanted.items():
        if getattr(found, name) != value:
            yield name, getattr(found, name), value


def to_plain(tree: Any) -> Any:
    """A tree of leaves as JSON: a leaf is {"shape": [...], "dtype": "..."} under the one key "leaf"."""
    if isinstance(tree, Leaf):
        return {"leaf": {"shape": list(tree.shape), "dtype": tree.dtype}}
    if isinstance(tree, dict):
        return {"dict": {name: to_plain(part) for name, part in tree.items()}}
    return {"list": [to_plain(part) for part in tree]}


def from_plain(value: Any) -> Any:
    """The inverse of `to_plain`; tuples come back as lists."""
    content: Any
    (kind, content), *rest = value.items() if isinstance(value, dict) else [("", None)]
    if rest or kind not in ("leaf", "dict", "list"):
        raise ValueError("inputs must be a tree of leaves, dicts and lists")
    if kind == "leaf":
        shape, dtype = content["shape"], content["dtype"]
        for size in shape:
            checks.check_count("shape", size, 0)
        return Leaf(tuple(shape), str(dtype))
    if kind == "dict":
        return {str(name): from_plain(part) for name, part in content.items()}
    return [from_plain(part) for part in content]


def from_json(values: Mapping[str, Any]) -> Network:
    """The description that `to_json` wrote; ValueError if it is none."""
    try:
        model, halting = dict(values["model"]), Halting(**values["halting"])
        if model.get("kind") != OWN:
            return Network(models.settings_of(model), halting)
        inputs, answers = model["inputs"], model["answers"]
        model |= {"inputs": None if inputs is None else from_plain(inputs)}
        model |= {"answers": None if answers is None else tuple(answers)}
        return Network(Own(**model), halting)
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"the description of the network is not whole: {on_one_line(str(error))[:200]}") from None
