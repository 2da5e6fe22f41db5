"""PonderNet as a torch module: wraps any step network (spec M1 to M7; paper §2)."""

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from ponder_ref import checks
from ponder_ref.base import Pondered, PonderLoss, Predicted
from ponder_ref.exits import own_exit
from ponder_ref.runtime.network import Network, Own
from ponder_ref.runtime.settings import Halting
from ponder_torch.arrays import to_numpy
from ponder_torch.infer import predict
from ponder_torch.pondering import halt_rule, ponder, pondered, training_loss
from ponder_torch.priors import named_log_prior

_AS_BUILT: Any = object()  # an argument not given: the module's own value


class PonderNet(nn.Module):
    """Lets a step network decide, for each example, how many steps to compute.

    Args:
      step: `step(x, h) -> (y_hat, h, halt_logit)`, a module or function; `step(h)` where `encoder` is given.
        halt_logit has one number per example, `[...batch]`; y_hat begins with the same shape; h is any tree of tensors.
        A step may bring its own start and a faster unroll (`ponder_ref.runtime.contracts`: Starts, Unrolls).
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
        self._starts_itself = initial_state is None and encoder is None and hasattr(step, "initial_state")
        checks.check_start(step.initial_state if self._starts_itself else initial_state, encoder, project)  # type: ignore
        checks.check_count("max_steps", max_steps, 1)
        self.min_steps = min(2, max_steps) if min_steps is None else min_steps
        methods = (*checks.METHODS, *getattr(step, "OWN_METHODS", ()))
        checks.check_pondering(max_steps, method, self.min_steps, epsilon, remainder, act_epsilon, methods)
        checks.check_prices(lambda_p, beta, tau)
        if log_prior is None:
            named_log_prior(prior, lambda_p, max_steps)  # complains of what it is not for
        self.step, self.initial_state, self.encoder, self.project = step, initial_state, encoder, project
        self.max_steps, self.method, self.epsilon, self.remainder = max_steps, method, epsilon, remainder
        self.prior, self.lambda_p, self.beta, self.tau, self.act_epsilon = prior, lambda_p, beta, tau, act_epsilon
        self._described: Network | None = None
        if log_prior is not None:
            checks.check_floating("log_prior", log_prior)
            checks.check_shape("log_prior", log_prior, (max_steps,), "max_steps")
            values = _values(log_prior)
            if values is not None:
                checks.check_distribution("log_prior", values, checks.dtype_name(log_prior))
        self.log_prior: torch.Tensor | None
        self.register_buffer("log_prior", log_prior, persistent=False)

    def _apply(self, *args: Any, **options: Any) -> "PonderNet":
        """Casts and moves the module as any other; but the prior keeps its precision, as a named one does."""
        prior = self.log_prior
        super()._apply(*args, **options)
        if prior is not None and self.log_prior is not None and self.log_prior.dtype != prior.dtype:
            self.log_prior = prior.to(self.log_prior.device)
        return self

    def forward(self, x: Any, *, max_steps: int | None = None, epsilon: float | None = _AS_BUILT) -> Pondered:
        """Ponders over a batch; `max_steps` and `epsilon` stand in for the module's own, as in evaluation.

        By the step's own fast unroll where it has one; else step by step.
        """
        steps = self.max_steps if max_steps is None else max_steps
        return self._ponder(x, steps, self.method, self.epsilon if epsilon is _AS_BUILT else epsilon)

    def every_step(self, x: Any, max_steps: int | None = None) -> Pondered:
        """All steps of all examples, whatever halts; of a method of the step's own what it gives."""
        own = self.method in getattr(self.step, "OWN_METHODS", ())
        steps = self.max_steps if max_steps is None else max_steps
        return self._ponder(x, steps, self.method if own else "repeat", None)

    def _ponder(self, x: Any, steps: int, method: str, epsilon: float | None) -> Pondered:
        limits = {"min_steps": min(self.min_steps, steps), "epsilon": epsilon, "act_epsilon": self.act_epsilon}
        step: Any = self.step
        unrolls = self._starts_itself and self.project is None
        if unrolls and method in getattr(step, "OWN_METHODS", ()):
            checks.check_count("max_steps", steps, 1)
            return step.unroll_by(method, x, max_steps=steps, act_epsilon=self.act_epsilon)
        if unrolls and _may_unroll(step):
            checks.check_pondering(steps, method, remainder=self.remainder, **limits)
            rule = halt_rule(method, **limits)
            longest = 1 if method == "once" else steps
            found = step.unroll(x, longest, rule)
            if found is not None:
                y_hat, z, state, lengths = found
                checks.check_unrolled(y_hat, z, lengths, longest)
                return pondered(y_hat, z, lengths, state, method, self.remainder, cut=rule is not None)
        start = self.start(x)
        return ponder(step, *start, max_steps=steps, method=method, remainder=self.remainder, **limits)

    def start(self, x: Any) -> tuple[Any, Any]:
        """What the step sees of an input (None after an encoder), and h₀."""
        starts: Any = self.step if self._starts_itself else self
        project = getattr(starts, "project", None) if self.project is None else self.project
        x = x if project is None else project(x)
        return (None, self.encoder(x)) if self.encoder is not None else (x, starts.initial_state(x))

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
        """The log-prior over 1..max_steps, or over `steps` if there are more of them."""
        if self.log_prior is not None:
            if steps > self.max_steps:
                raise ValueError(f"log_prior has {self.max_steps} steps, fewer than the {steps} that were run")
            return self.log_prior.to(torch.float64 if like.dtype == torch.float64 else torch.float32)
        dtype = "float64" if like.dtype == torch.float64 else "float32"
        return named_log_prior(self.prior, self.lambda_p, max(steps, self.max_steps), dtype=dtype).to(like.device)

    def loss(
        self, out: Pondered, targets: torch.Tensor, criterion: Callable, *, weights: torch.Tensor | None = None
    ) -> PonderLoss:
        """The training loss and its parts (M6).

        Args:
          out: what calling the module gave.
          targets: `[...batch, ...]`, or a tree of such tensors.
          criterion: any loss of a prediction and a target, one value per example (not averaged over the batch).
          weights: `[...batch]`; padding has weight 0 and no influence, whatever its predictions and targets are.
        """
        prior = self.log_prior_over(len(out.halt_logits), out.halt_logits) if self.method == "ponder" else None
        prices = {"beta": self.beta, "tau": self.tau}
        return training_loss(out, targets, criterion, log_prior=prior, weights=weights, **prices)

    @property
    def halting(self) -> Halting:
        """How it ponders, as plain values."""
        return Halting(**{each.name: getattr(self, each.name) for each in fields(Halting)})

    @property
    def settings(self) -> Any:
        """The settings of a network of the paper (`ponder_ref.models`); None for any other, be it made of one."""
        from ponder_torch.models import is_canonical  # which imports this module

        step: Any = self.step
        return step.settings if self._starts_itself and self.project is None and is_canonical(step) else None

    @property
    def network(self) -> Network:
        """What it is, in plain values: enough to build it again, with `build` if it is not of the paper."""
        if self.settings is not None:
            return Network(self.settings, self.halting)
        own = Own(type(self.step).__qualname__, answers=None) if self._described is None else self._described.model
        return Network(own, self.halting)

    def describe(self, network: Network) -> None:
        """Notes what a network of somebody's own was built for, so that `save` can write it down."""
        self._described = network

    def save(self, folder: str | Path) -> Path:
        """Writes the network into a folder that `load` of any backend can read; the file's path."""
        from ponder_torch.load import save

        return save(self, folder)

    def extra_repr(self) -> str:
        return (
            f"method={self.method!r}, max_steps={self.max_steps}, epsilon={self.epsilon}, remainder={self.remainder!r}"
        )


def _may_unroll(step: Any) -> bool:
    """Whether the step has a fast unroll that is of its own steps: nothing of them is replaced, and no hook waits."""
    if not hasattr(step, "unroll"):
        return False
    if isinstance(step, nn.Module) and (
        step._forward_hooks or step._forward_pre_hooks or step._backward_hooks or step._backward_pre_hooks
    ):
        return False
    kind, replaced = type(step), getattr(step, "__dict__", {})
    owner = next((each for each in kind.__mro__ if "unroll" in vars(each)), kind)
    names = ("forward", "__call__", "project", "initial_state")
    return all(getattr(kind, name, None) is getattr(owner, name, None) and name not in replaced for name in names)


def _values(x: Any) -> np.ndarray | None:
    """A tensor's values in float64; None where they are not there: while torch compiles, maps or only plans."""
    if torch.compiler.is_compiling():
        return None
    try:
        return np.asarray(to_numpy(torch.as_tensor(x)), np.float64)
    except RuntimeError:
        return None
