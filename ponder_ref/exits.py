"""How the examples of a model leave where a call does not say it (spec I1 to I8)."""

from typing import Any

from ponder_ref import checks
from ponder_ref.base import ExitRule
from ponder_ref.sampling import MASK

# The policies of `predict`, by name. The reference applies them in infer.py, each backend in its exits.py.
POLICIES = ("sample", "quantile", "fixed", "expected")
# Of the policy "expected" where neither call nor model has its own; ε is the paper's (§2.3).
DEFAULTS: dict[str, Any] = {"epsilon": 0.05, "min_steps": 1, "remainder": "last"}


def own_exit(model: Any, max_steps: int | None, policy: str | None) -> dict[str, Any]:
    """How the examples of a model leave where a call does not say it: by the model's method and its own numbers."""
    method = getattr(model, "method", "ponder")
    policy = ("sample" if method == "ponder" else "fixed") if policy is None else policy
    checks.check_predictable(method, policy)
    own_steps = 1 if method == "once" else model.max_steps
    steps = own_steps if max_steps is None else max_steps
    checks.check_count("max_steps", steps, 1)
    own = {name: getattr(model, name, None) for name in DEFAULTS}
    numbers = {name: DEFAULTS[name] if value is None else value for name, value in own.items()}
    return {**numbers, "policy": policy, "max_steps": steps, "min_steps": min(numbers["min_steps"], steps)}


def stream_rule(
    model: Any, max_steps: int | None, policy: str | None, slots: Any, first_id: Any, **given: Any
) -> tuple[ExitRule, int]:
    """The checked rule of a stream and the id of its first example mod 2³² (S2); what is None is the model's own."""
    checks.check_stream(slots, first_id)
    own = own_exit(model, max_steps, policy)
    rule = ExitRule(**{**own, **{name: value for name, value in given.items() if value is not None}})
    checks.check_exit(rule, POLICIES)
    return rule, int(first_id) & MASK
