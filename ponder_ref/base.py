"""Plain types that the reference, the backends and the tasks exchange; they hold values and compute nothing."""

from typing import Any, NamedTuple

SPEC_VERSION = "2.0.0"


class PonderLoss(NamedTuple):
    """The total loss and its parts (spec L4)."""

    loss: Any
    loss_rec: Any
    loss_reg: Any
    example_rec: Any
    example_reg: Any


class ActHalting(NamedTuple):
    """Weights `[N, ...batch]`, steps and remainder `[...batch]` of ACT (spec A1, A2)."""

    weights: Any
    steps: Any
    remainder: Any


class Pondered(NamedTuple):
    """What pondering gives (spec M1 to M4): everything a loss, a metric or a figure needs.

    y_hat `[N, ...batch, ...]`, halt_logits `[N, ...batch]`, log_p `[N, ...batch]` (None for ACT), lengths `[...batch]`,
    state (a tree, after each example's own last step), act (ACT's weights, steps and remainder, else None).
    """

    y_hat: Any
    halt_logits: Any
    log_p: Any
    lengths: Any
    state: Any
    act: Any


class HaltRule(NamedTuple):
    """When an unroll may end: what a step's logit adds to each example's sum, whether the sum is enough, and from which
    step on that counts (spec M2, M4)."""

    add: Any
    enough: Any
    min_steps: int


class Trace(NamedTuple):
    """Every step that `predict` took (spec I7): y_hat `[N, examples, ...]`, halt_logits `[N, examples]`."""

    y_hat: Any
    halt_logits: Any


class Predicted(NamedTuple):
    """Answers and steps, one an example, and the rows the step network was given; the rest only with a trace (spec I1
    to I7): log_p `[N, examples]`, expected (Σ pₙŷₙ of the steps taken) and the trace itself."""

    y_hat: Any
    steps: Any
    rows: Any
    log_p: Any = None
    expected: Any = None
    trace: Any = None


class Answer(NamedTuple):
    """An answer of a stream (spec I8): the example's place in the stream, its prediction and its number of steps."""

    index: int  # pyright: ignore[reportIncompatibleMethodOverride]
    y_hat: Any
    steps: int


class ExitRule(NamedTuple):
    """When an example leaves: the policy of `predict` and its numbers (spec I1 to I4)."""

    policy: str
    max_steps: int
    seed: int
    draw: int
    q: float
    epsilon: float
    min_steps: int
    remainder: str


class Batch(NamedTuple):
    """Examples as NumPy arrays: what crosses from a task into a backend. `weights` may be None."""

    inputs: Any
    targets: Any
    weights: Any
    example_ids: Any


class AdamState(NamedTuple):
    """A parameter and its two moments after an update (spec O1)."""

    param: Any
    m: Any
    v: Any


class MuonState(NamedTuple):
    """A parameter and its momentum after an update (spec O3)."""

    param: Any
    m: Any


class Clipped(NamedTuple):
    """Gradients after clipping, and their norm before it (spec O4)."""

    grads: Any
    norm: Any
