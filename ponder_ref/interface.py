"""What a backend offers: names, results with several parts, and which requirement each function answers for.

The signatures themselves are those of `ponder_ref`'s functions; the judge reads them from there (spec B2).
"""

from typing import Any, NamedTuple

SPEC_VERSION = "1.7.0"


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


class LeavingRule(NamedTuple):
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


FUNCTIONS: dict[str, tuple[str, ...]] = {
    "log_halting": ("H1", "H2", "H3", "H4", "H9", "H10"),
    "log_halting_from_lambdas": ("H5",),
    "halting_lengths": ("H6",),
    "expected_steps": ("H7",),
    "expected_prediction": ("H8",),
    "geometric_log_prior": ("P1", "P2"),
    "uniform_log_prior": ("P3",),
    "poisson_log_prior": ("P4",),
    "expected_loss": ("L1",),
    "kl_divergence": ("L2",),
    "weighted_mean": ("L3",),
    "ponder_loss": ("L4", "L5"),
    "threefry2x32": ("S1",),
    "halting_uniforms": ("S2",),
    "sample_steps": ("S3",),
    "draw_steps": ("S4", "S5"),
    "quantile_steps": ("S6",),
    "act_halting": ("A1", "A2", "A5"),
    "act_cost": ("A3",),
    "act_output": ("A4",),
    "adam_update": ("O1",),
    "orthogonalize": ("O2",),
    "muon_update": ("O3",),
    "clip_by_global_norm": ("O4",),
    "schedule": ("O5",),
}

MODULE_FUNCTIONS: dict[str, tuple[str, ...]] = {
    "ponder": ("M1", "M2", "M3", "M4"),
    "cross_entropy": ("M5",),
    "binary_cross_entropy": ("M5",),
    "squared_error": ("M5",),
    "pondering_loss": ("M6", "M7"),
    "rnn_project": ("M8",),
    "rnn_transition": ("M8",),
    "rnn_readout": ("M8",),
    "transformer_encode": ("M9",),
    "transformer_transition": ("M9",),
    "transformer_readout": ("M9",),
    "pairs_encode": ("M10",),
    "pairs_query": ("M10",),
    "pairs_transition": ("M10",),
    "pairs_decode": ("M10",),
    "pairs_readout": ("M10",),
}

INFER_FUNCTIONS: dict[str, tuple[str, ...]] = {
    "predict": ("I1", "I2", "I3", "I4", "I5", "I6", "I7"),
    "stream": ("I8",),
}

REQUIRED = ("from_numpy", "to_numpy", "log_halting", "expected_loss", "kl_divergence", "weighted_mean", "ponder_loss")
TRANSFORMS = ("value_and_grad", "compiled", "vmapped")
OPTIONAL = (*FUNCTIONS, *MODULE_FUNCTIONS, *INFER_FUNCTIONS, *TRANSFORMS)  # what a backend may lack, REQUIRED apart
LEVEL_FUNCTIONS = {"core": FUNCTIONS, "module": MODULE_FUNCTIONS, "infer": INFER_FUNCTIONS}  # what each level adds
