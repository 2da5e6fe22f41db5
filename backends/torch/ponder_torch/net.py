"""PonderNet as a torch module: wraps any step network (spec M1 to M7; paper §2)."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

from ponder_ref.base import Pondered, Predicted
from ponder_ref.exits import own_exit
from ponder_ref.runtime.module import AS_BUILT, PonderModule
from ponder_torch import pondering
from ponder_torch.arrays import to_numpy
from ponder_torch.infer import predict
from ponder_torch.priors import named_log_prior

Tensors = dict[str, torch.Tensor]


class PonderNet(PonderModule, nn.Module):
    """Lets a step network decide, for each example, how many steps to compute.

    Args:
      step: `step(x, h) -> (y_hat, h, halt_logit)`, a module or function; `step(h)` where `encoder` is given.
        halt_logit has one number per example, `[...batch]`; y_hat begins with the same shape; h is any tree of tensors.
        A step may bring its own start and a faster unroll (`ponder_ref.runtime.contracts.StepNetwork`).
      max_steps: N, the largest number of steps.
      initial_state: h₀ as a function of the input (after `project`); the step's own where no encoder is given either.
      encoder: h₀ as a network of the input, for a step that sees the input only through its state (paper, footnote 1).
      project: a network applied to the input once; the step sees its result.
      method: "ponder", or a baseline: "act", "repeat" (N steps, the last answers), "once" (one step); or one of the
        step's own (OWN_METHODS).
      prior, lambda_p, beta: the prior's name (`ponder_ref.priors.PRIORS`) and parameter, and the weight of the KL
        (paper §2.4).
      log_prior: any other prior, log-probabilities `[max_steps]`, instead of `prior` and `lambda_p`.
      epsilon, min_steps: unroll until all but ε of each example has halted, after min_steps (2) at the earliest (§2.3).
      remainder: "last" or "normalize" (§2.3).
      tau, act_epsilon: ACT's price of a step and its ε.

    >>> net = PonderNet(lambda x, h: (h, h + x, x - 1.0), max_steps=3, initial_state=torch.zeros_like)
    >>> out = net(torch.tensor([1.0, 2.0]))
    >>> tuple(out.y_hat.shape), bool((out.log_p.exp().sum(0) - 1).abs().max() < 1e-6)
    ((3, 2), True)
    """

    maths = pondering
    named_log_prior, as_array = staticmethod(named_log_prior), staticmethod(to_numpy)

    def __init__(
        self,
        step: Callable,
        *,
        max_steps: int,
        initial_state: Callable | None = None,
        encoder: Callable | None = None,
        project: Callable | None = None,
        method: str = "ponder",
        prior: str = "geometric",
        lambda_p: float = 0.2,
        beta: float = 0.01,
        log_prior: torch.Tensor | None = None,
        epsilon: float | None = None,
        min_steps: int | None = None,
        remainder: str = "last",
        tau: float = 0.001,
        act_epsilon: float = 0.01,
    ):
        super().__init__()
        start = initial_state, encoder, project
        numbers = prior, lambda_p, beta, epsilon, min_steps, remainder, tau, act_epsilon
        self._build(step, start, max_steps, method, *numbers)
        self._check_log_prior(log_prior, None if log_prior is None else _values(log_prior))
        self.log_prior: torch.Tensor | None
        self.register_buffer("log_prior", log_prior, persistent=False)

    def _apply(self, *args: Any, **options: Any) -> "PonderNet":
        """Casts and moves the module as any other; but the prior keeps its precision, as a named one does."""
        prior = self.log_prior
        super()._apply(*args, **options)
        if prior is not None and self.log_prior is not None and self.log_prior.dtype != prior.dtype:
            self.log_prior = prior.to(self.log_prior.device)
        return self

    def forward(self, x: Any, *, max_steps: int | None = None, epsilon: float | None = AS_BUILT) -> Pondered:
        """Ponders over a batch; `max_steps` and `epsilon` stand in for the module's own, as in evaluation.

        By the step's own fast unroll where it has one; else step by step.
        """
        return self._ponder(x, max_steps, self.method, epsilon)

    def _is_changed(self) -> bool:
        step: Any = self.step
        hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
        replaced = {"forward", "__call__", "project", "initial_state"} & getattr(step, "__dict__", {}).keys()
        return bool(replaced) or any(getattr(step, name, None) for name in hooks)

    def _step_by_step(self, x: Any, **options: Any) -> Pondered:
        return pondering.ponder(self.step, *self.start(x), **options)

    @torch.no_grad()
    def predict(self, x: Any, *, max_steps: int | None = None, policy: str | None = None, **options: Any) -> Predicted:
        """The answer of each example after as many steps as it needs (I1 to I7).

        A step with dropout or batch norm is to be in evaluation mode, `net.eval()`: in training mode an answer would
        depend on chance and on the other examples.

        Args:
          x: the input, a tree of tensors whose first axis is the examples'.
          max_steps, policy, options: as for `ponder_torch.predict`; ε, min_steps and remainder are the module's own if
            not given. Modules of the methods "repeat" and "once" take their fixed number of steps.
        """
        own = own_exit(self, max_steps, policy)
        return predict(self.step, *self.start(x), **{**own, **options})

    def log_prior_over(self, steps: int, like: torch.Tensor) -> torch.Tensor:
        dtype = torch.float64 if like.dtype == torch.float64 else torch.float32
        return super().log_prior_over(steps, like).to(like.device, dtype)

    def variables(self) -> tuple[Tensors, Tensors]:
        """Parameters and buffers by name; what is tied counts once."""
        module: nn.Module = self if self.settings is None else self.step
        saved = module.state_dict(keep_vars=True)
        return dict(module.named_parameters()), {name: x for name, x in module.named_buffers() if name in saved}

    def extra_repr(self) -> str:
        return (
            f"method={self.method!r}, max_steps={self.max_steps}, epsilon={self.epsilon}, remainder={self.remainder!r}"
        )


def _values(x: Any) -> np.ndarray | None:
    """A tensor's values in float64; None where they are not there: while torch compiles, maps or only plans."""
    if torch.compiler.is_compiling():
        return None
    try:
        return np.asarray(to_numpy(torch.as_tensor(x)), np.float64)
    except RuntimeError:
        return None
