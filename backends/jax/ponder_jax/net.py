"""PonderNet as a Flax NNX module: wraps any step network (spec M1 to M7; paper §2)."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flax import nnx
from jax.core import Tracer

from ponder_jax.infer import predict
from ponder_jax.pondering import Shared, halt_rule, ponder, pondered, training_loss
from ponder_jax.priors import named_log_prior
from ponder_ref import checks
from ponder_ref.base import Pondered, PonderLoss, Predicted
from ponder_ref.exits import own_exit
from ponder_ref.runtime.network import Network, Own, from_json
from ponder_ref.runtime.settings import Halting

_AS_BUILT: Any = object()  # an argument not given: the module's own value


class PonderNet(nnx.Module):
    """Lets a step network decide, for each example, how many steps to compute.

    Args:
      step: `step(x, h) -> (y_hat, h, halt_logit)`, a module, or a function without parameters of its own; `step(h)`
        where `encoder` is given. A function that closes over a module hides its parameters from the optimizer and from
        transforms, and `predict` keeps those it was first compiled with; so do `initial_state`, `encoder`, `project`.
        halt_logit has one number per example, `[...batch]`; y_hat begins with the same shape; h is any tree of arrays.
        A step may bring its own start and a faster unroll (`ponder_ref.runtime.contracts`: Starts, Unrolls).
      max_steps: N, the largest number of steps.
      initial_state: h₀ as a function of the input (after `project`); the step's own if this and encoder are not given.
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

    >>> net = PonderNet(lambda x, h: (h, h + x, x - 1.0), max_steps=3, initial_state=jax.numpy.zeros_like)
    >>> out = net(jax.numpy.array([1.0, 2.0]))
    >>> out.y_hat.shape, bool(abs(jax.numpy.exp(out.log_p).sum(0) - 1).max() < 1e-6)
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
        log_prior: jax.Array | None = None,
        epsilon: float | None = None,
        min_steps: int | None = None,
        remainder: str = "last",
        tau: float = 0.001,
        act_epsilon: float = 0.01,
    ):
        self._starts_itself = initial_state is None and encoder is None and hasattr(step, "initial_state")
        checks.check_start(step.initial_state if self._starts_itself else initial_state, encoder, project)  # type: ignore
        given = {"step": step, "initial_state": initial_state, "encoder": encoder, "project": project}
        for name, function in given.items():
            _check_closure(name, function)
        checks.check_count("max_steps", max_steps, 1)
        self.min_steps = min(2, max_steps) if min_steps is None else min_steps
        methods = (*checks.METHODS, *getattr(step, "OWN_METHODS", ()))
        checks.check_pondering(max_steps, method, self.min_steps, epsilon, remainder, act_epsilon, methods)
        checks.check_prices(lambda_p, beta, tau)
        if log_prior is None:
            named_log_prior(prior, lambda_p, max_steps)  # which says what it cannot be made of
        self.step, self.initial_state, self.encoder, self.project = step, initial_state, encoder, project
        self.max_steps, self.method, self.epsilon, self.remainder = max_steps, method, epsilon, remainder
        self.prior, self.lambda_p, self.beta, self.tau, self.act_epsilon = prior, lambda_p, beta, tau, act_epsilon
        self._described: str | None = None
        if log_prior is not None:
            checks.check_floating("log_prior", log_prior)
            checks.check_shape("log_prior", log_prior, (max_steps,), "max_steps")
            if not isinstance(log_prior, Tracer):
                checks.check_distribution("log_prior", np.asarray(log_prior, np.float64), checks.dtype_name(log_prior))
        self.log_prior = nnx.Variable(log_prior) if log_prior is not None else None

    def __call__(self, x: Any, *, max_steps: int | None = None, epsilon: float | None = _AS_BUILT) -> Pondered:
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
                checks.check_unrolled(found, longest)
                y_hat, z, state, lengths = found
                if not isinstance(lengths, Tracer) and ((lengths < 1) | (lengths > len(z))).any():
                    raise ValueError(f"lengths of an unroll must be 1 to its {len(z)} steps, got {lengths}")
                return pondered(y_hat, z, lengths, state, method, self.remainder, cut=rule is not None)
        x, state = self.start(x)
        pure, changing, put_back = _as_function(step)
        given = x, (state, Shared(changing))
        out = ponder(pure, *given, max_steps=steps, method=method, remainder=self.remainder, **limits)
        state, shared = out.state
        put_back(shared.tree)
        return out._replace(state=state)

    def start(self, x: Any) -> tuple[Any, Any]:
        """What the step sees of an input (None after an encoder), and h₀."""
        starts: Any = self.step if self._starts_itself else self
        project = getattr(starts, "project", None) if self.project is None else self.project
        x = x if project is None else project(x)
        return (None, self.encoder(x)) if self.encoder is not None else (x, starts.initial_state(x))

    def functions(self) -> tuple["Method", "Method"]:
        """`start` and `step` as trees, for compiled code that is to take the module's variables as arguments."""
        graph, variables = nnx.split(self)
        return Method(graph, variables, "start"), Method(graph, variables, "step")

    def predict(self, x: Any, *, max_steps: int | None = None, policy: str | None = None, **options: Any) -> Predicted:
        """The answer of each example after as many steps as it needs (I1 to I7); the module is left as it was.

        A step with dropout or batch norm is to be in evaluation mode, `net.eval()`: in training mode an answer would
        depend on chance and on the other examples.

        Args:
          x: the input, a tree of arrays whose first axis is the examples'.
          max_steps, policy, options: as for `ponder_jax.predict`; ε, min_steps and remainder are the module's own if
            not given. Modules of the methods "repeat" and "once" take their fixed number of steps.
        """
        own = own_exit(self, max_steps, policy)
        start, step = self.functions()
        return predict(step, *_started(start, x), **{**own, **options})

    def log_prior_over(self, steps: int, like: jax.Array) -> jax.Array:
        """The log-prior over 1..max_steps, or over `steps` if there are more of them."""
        if self.log_prior is not None:
            if steps > self.max_steps:
                raise ValueError(f"log_prior has {self.max_steps} steps, fewer than the {steps} that were run")
            return self.log_prior[...]
        dtype = "float64" if like.dtype == "float64" else "float32"
        return named_log_prior(self.prior, self.lambda_p, max(steps, self.max_steps), dtype=dtype)

    @property
    def halting(self) -> Halting:
        """How it ponders, as plain values."""
        return Halting(**{each.name: getattr(self, each.name) for each in fields(Halting)})

    @property
    def settings(self) -> Any:
        """The settings of a network of the paper (`ponder_ref.models`); None for any other, be it made of one."""
        from ponder_jax.models import is_canonical  # which imports this module

        step: Any = self.step
        return step.settings if self._starts_itself and self.project is None and is_canonical(step) else None

    @property
    def network(self) -> Network:
        """What it is, in plain values: enough to build it again, with `build` if it is not of the paper."""
        if self.settings is not None:
            return Network(self.settings, self.halting)
        if self._described is not None:
            return Network(from_json(json.loads(self._described)).model, self.halting)
        return Network(Own(type(self.step).__qualname__, answers=None), self.halting)

    def describe(self, network: Network) -> None:
        """Notes what a network of somebody's own was built for, so that `save` can write it down."""
        self._described = json.dumps(network.to_json())  # a text, as what a compiler knows must have a hash

    def save(self, folder: str | Path) -> Path:
        """Writes the network into a folder, from which `load` of any backend reads it; the file's path."""
        from ponder_jax.load import save

        return save(self, folder)

    def loss(
        self, out: Pondered, targets: jax.Array, criterion: Callable, *, weights: jax.Array | None = None
    ) -> PonderLoss:
        """The training loss and its parts (M6).

        Args:
          out: what calling the module gave.
          targets: `[...batch, ...]`, or a tree of such arrays.
          criterion: any loss of a prediction and a target, one value per example (not averaged over the batch).
          weights: `[...batch]`; padding has weight 0 and no influence, whatever its predictions and targets are.
        """
        prior = self.log_prior_over(len(out.halt_logits), out.halt_logits) if self.method == "ponder" else None
        prices = {"beta": self.beta, "tau": self.tau}
        return training_loss(out, targets, criterion, log_prior=prior, weights=weights, **prices)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Method:
    """A method of a module: its structure is known to the compiler, its variables are arrays. Calls change nothing."""

    graph: Any = field(metadata={"static": True})
    variables: Any
    name: str = field(metadata={"static": True})

    def __call__(self, *args: Any) -> Any:
        # A copy, so that what a call changes in the module (counts of random numbers, say) belongs to this trace.
        return getattr(nnx.merge(self.graph, self.variables, copy=True), self.name)(*args)


def _may_unroll(step: Any) -> bool:
    """Whether the step has a fast unroll that is of its own steps: no subclass has replaced what they do."""
    kind = type(step)
    owner = next((each for each in kind.__mro__ if "unroll" in vars(each)), None)
    names = ("__call__", "project", "initial_state")
    return owner is not None and all(getattr(kind, name, None) is getattr(owner, name, None) for name in names)


def _check_closure(name: str, function: Any) -> None:
    """Refuses a function that closes over a variable, which neither optimizer nor compiled code would see change."""
    for cell in getattr(function, "__closure__", None) or ():
        try:
            held = cell.cell_contents
        except ValueError:  # not filled yet
            continue
        if isinstance(held, nnx.Variable):
            kind = type(held).__name__
            raise ValueError(
                f"{name} must not close over a variable, got an nnx.{kind}: make {name} a module that has it"
            )


@jax.jit
def _started(start: Method, x: Any) -> tuple[Any, Any]:
    return start(x)


def _as_function(step: Callable) -> tuple[Callable, Any, Callable]:
    """A step as a pure function, what changes in it from call to call (random keys, say), and how to put that back.

    Parameters are closed over; only what changes is carried along the loop. What a step sows is dropped, and so is what
    it writes to a parameter (as `nnx.WeightNorm` does, anew in every call): parameters are the optimiser's.
    """
    if not isinstance(step, nnx.Module):

        def plain(*args):
            y_hat, h, z = checks.step_result(step(*args[:-1], args[-1][0]))
            return y_hat, (h, args[-1][1]), z

        return plain, None, lambda changed: None
    kinds = nnx.Param, nnx.Intermediate, ...  # what a step sows has no place in a loop
    graph, params, sown, changing = nnx.split(step, *kinds)
    replaced: set[tuple] = set()

    def pure(*args):
        h, shared = args[-1]
        # A copy, so that its variables belong to this trace: transforms of Flax inside the step write to all of them.
        module = nnx.merge(graph, params, sown, shared.tree, copy=True)
        y_hat, h, z = checks.step_result(module(*args[:-1], h))
        changed = nnx.split(module, *kinds)[3]
        replaced.update(_replaced(shared.tree, changed))
        return y_hat, (h, Shared(changed)), z

    def put_back(changed: Any) -> None:
        """Writes to the step's variables what it has replaced, and nothing else: they may belong to another trace."""
        nnx.update(step, nnx.from_flat_state([pair for pair in nnx.to_flat_state(changed) if pair[0] in replaced]))

    return pure, changing, put_back


def _replaced(old: Any, new: Any) -> set[tuple]:
    """The paths of variables that have another array than before, be it an equal one."""
    before, after = ({path: jax.tree.leaves(part) for path, part in nnx.to_flat_state(state)} for state in (old, new))
    return {path for path, arrays in after.items() if [*map(id, arrays)] != [*map(id, before.get(path, ()))]}
