"""PonderNet as a Flax NNX module: wraps any step network (spec M1 to M7; paper §2)."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.core import Tracer
from jax.tree_util import GetAttrKey

from ponder_jax import pondering
from ponder_jax.infer import predict
from ponder_jax.pondering import Shared
from ponder_jax.priors import named_log_prior
from ponder_ref import checks
from ponder_ref.base import Pondered, Predicted
from ponder_ref.exits import own_exit
from ponder_ref.runtime.module import AS_BUILT, PonderModule

Arrays = dict[str, jax.Array]


def is_key(x: jax.Array) -> bool:
    return jnp.issubdtype(x.dtype, jax.dtypes.prng_key)


def is_half(x: Any) -> bool:
    return jnp.issubdtype(x.dtype, jnp.floating) and x.dtype.itemsize < 4


def as_array(x: jax.Array) -> np.ndarray:
    """A variable's array; of random keys their data, of half precision (NumPy lacks bfloat16) float32."""
    array = np.array(jax.random.key_data(x) if is_key(x) else x, order="C")
    return array.astype(np.float32) if is_half(array) else array


def as_variable(array: np.ndarray, like: jax.Array, dtype: str | None = None) -> jax.Array:
    """The array as a variable's: random keys of their data, floats in a dtype if one is given.

    Else a variable of half precision keeps its own dtype.
    """
    if is_key(like):
        return jax.random.wrap_key_data(jnp.asarray(array), impl=jax.random.key_impl(like))
    if dtype is None and is_half(like):
        return jnp.asarray(array).astype(like.dtype)
    return jnp.asarray(array, dtype if jnp.issubdtype(array.dtype, jnp.floating) else None)


class PonderNet(PonderModule, nnx.Module):
    """Lets a step network decide, for each example, how many steps to compute.

    Args:
      step: `step(x, h) -> (y_hat, h, halt_logit)`, a module, or a function without parameters of its own; `step(h)`
        where `encoder` is given. A function that closes over a module hides its parameters from the optimizer and from
        transforms, and `predict` keeps those it was first compiled with; so do `initial_state`, `encoder`, `project`.
        halt_logit has one number per example, `[...batch]`; y_hat begins with the same shape; h is any tree of arrays.
        A step may bring its own start and a faster unroll (`ponder_ref.runtime.contracts.StepNetwork`).
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

    maths = pondering
    named_log_prior, as_array = staticmethod(named_log_prior), staticmethod(as_array)

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
        start = initial_state, encoder, project
        for name, function in zip(("step", "initial_state", "encoder", "project"), (step, *start), strict=True):
            _check_closure(name, function)
        numbers = prior, lambda_p, beta, epsilon, min_steps, remainder, tau, act_epsilon
        self._build(step, start, max_steps, method, *numbers)
        known = log_prior is not None and not isinstance(log_prior, Tracer)
        self._check_log_prior(log_prior, np.asarray(log_prior, np.float64) if known else None)
        self.log_prior = nnx.Variable(log_prior) if log_prior is not None else None

    def __call__(self, x: Any, *, max_steps: int | None = None, epsilon: float | None = AS_BUILT) -> Pondered:
        """Ponders over a batch; `max_steps` and `epsilon` stand in for the module's own, as in evaluation.

        By the step's own fast unroll where it has one; else step by step.
        """
        return self._ponder(x, max_steps, self.method, epsilon)

    def _check_unrolled(self, found: Any, max_steps: int) -> None:
        super()._check_unrolled(found, max_steps)
        _, z, _, lengths = found
        if not isinstance(lengths, Tracer) and ((lengths < 1) | (lengths > len(z))).any():
            raise ValueError(f"lengths of an unroll must be 1 to its {len(z)} steps, got {lengths}")

    def _step_by_step(self, x: Any, **options: Any) -> Pondered:
        x, state = self.start(x)
        pure, changing, put_back = _as_function(self.step)
        out = pondering.ponder(pure, x, (state, Shared(changing)), **options)
        state, shared = out.state
        put_back(shared.tree)
        return out._replace(state=state)

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

    def variables(self) -> tuple[Arrays, Arrays]:
        """Parameters, and the other variables (running statistics, random keys), by name."""
        _, *parts = self.take_apart()
        params, rest = (dict(zip(self.names_of(part), jax.tree.leaves(part), strict=True)) for part in parts)
        return params, rest

    def take_apart(self) -> tuple[Any, Any, Any]:
        """The structure of the net, its parameters, and its other variables; what it has sown is left out."""
        graph, params, _, rest = nnx.split(self, nnx.Param, nnx.Intermediate, ...)
        return graph, params, rest

    def names_of(self, state: Any) -> list[str]:
        """The names of a state's arrays in the order of its leaves: paths, of a network of the paper below its step."""
        names = []
        for path, _ in jax.tree.leaves_with_path(state):
            keys = [key for key in path if not isinstance(key, GetAttrKey)]
            parts = [str(getattr(key, "key", getattr(key, "idx", ""))) for key in keys]
            names.append(".".join(parts[1:] if self.settings is not None and parts[0] == "step" else parts))
        return names


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
