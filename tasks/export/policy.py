"""When a row halts and what it answers, and the inputs and outputs of a file that does so.

| policy     | halts at the first n with              | answer                        |
|------------|----------------------------------------|-------------------------------|
| `sample`   | uₙ < λₙ (spec S3, u by S2)             | ŷₙ                            |
| `quantile` | 1 − Π_{j≤n} (1 − λⱼ) ≥ q (S6, p by H2) | ŷₙ                            |
| `fixed`    | none                                   | ŷ_N                           |
| `expected` | Σ_{j≤n} logsigmoid(−zⱼ) < log ε (H6)   | Σₙ pₙŷₙ, p cut there (H4, H8) |

Every row halts at N at the latest.
"""

from dataclasses import dataclass
from typing import Any

from ponder_ref import checks
from ponder_ref.checks import check_choice
from ponder_ref.exits import POLICIES
from ponder_ref.models.rnn import Rnn
from ponder_ref.runtime.errors import Refused

MOST_STEPS = 2**16 - 1  # what the counter of S2 has room for


@dataclass(frozen=True)
class Exit:
    """A policy with its numbers; `q` is of "quantile", `epsilon` (None: all N steps) and `remainder` of "expected"."""

    policy: str = "sample"
    max_steps: int = 20
    q: float = 0.5
    epsilon: float | None = None
    remainder: str = "last"

    def __post_init__(self):
        check_choice("policy", self.policy, POLICIES)
        checks.check_count("max_steps", self.max_steps, 1, MOST_STEPS)
        checks.check_remainder(self.remainder)
        checks.check_number("q", self.q, "(0, 1]")
        if self.epsilon is not None:
            checks.check_number("epsilon", self.epsilon, "(0, 1)")

    def settings(self) -> dict[str, Any]:
        """What the policy uses, as plain values."""
        own = {"quantile": ("q",), "expected": ("epsilon", "remainder")}.get(self.policy, ())
        return {"name": self.policy, "max_steps": self.max_steps} | {name: getattr(self, name) for name in own}


def check_written(exit: Exit, policies: tuple[str, ...], format: str) -> None:
    """Refuses a policy that the exporter of a format does not write, though `predict` has it."""
    if exit.policy not in policies:
        raise Refused(f"--policy {exit.policy} cannot be exported to {format}; what can be is {', '.join(policies)}")


def answer_shape(model: Rnn, batch: Any) -> tuple[Any, ...]:
    """The shape of a prediction: no last axis where there is one output (M8)."""
    return (batch,) if model.outputs == 1 else (batch, model.outputs)


def port(name: str, dtype: str, *shape: Any) -> dict[str, Any]:
    """An input or output, as the description of a file has it."""
    return {"name": name, "dtype": dtype, "shape": list(shape)}


def ports(model: Rnn, exit: Exit, seed: dict[str, Any], ids: str, counts: str) -> dict[str, Any]:
    """Inputs and outputs of a file, in order: the port of its seed, the dtypes of ids and of numbers of steps."""
    drawn = [seed, port("example_ids", ids, "batch")] if exit.policy == "sample" else []
    outputs = [port("y_hat", "float32", *answer_shape(model, "batch")), port("steps", counts, "batch")]
    inputs = [port("x", "float32", "batch", model.inputs), *drawn]
    return {"inputs": inputs, "outputs": [*outputs, port("iterations", counts)]}
