"""What PonderNet is on every backend, without a framework: its checks, its start, its unrolls, its description."""

import json
from collections.abc import Callable
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from ponder_ref import checks
from ponder_ref.base import Pondered, PonderLoss
from ponder_ref.runtime.network import Network, Own, from_json
from ponder_ref.runtime.settings import Halting

AS_BUILT: Any = object()  # an argument not given: the module's own value


class PonderModule:
    """What a backend's PonderNet inherits beside its framework's module.

    A backend adds what needs its framework: `_step_by_step`, `variables` and what is named here.
    """

    maths: Any  # its module `pondering`
    named_log_prior: Callable[..., Any]
    as_array: Callable[[Any], Any]  # a variable as a NumPy array
    log_prior: Any  # log-probabilities [max_steps], or None for the prior that has a name

    def _build(
        self,
        step: Any,
        start: tuple[Any, Any, Any],
        max_steps: int,
        method: str,
        prior: str,
        lambda_p: float,
        beta: float,
        epsilon: float | None,
        min_steps: int | None,
        remainder: str,
        tau: float,
        act_epsilon: float,
    ) -> None:
        """Checks and keeps the arguments of PonderNet; `start` is (initial_state, encoder, project)."""
        initial_state, encoder, project = start
        self._starts_itself = initial_state is None and encoder is None and hasattr(step, "initial_state")
        checks.check_start(step.initial_state if self._starts_itself else initial_state, encoder, project)
        checks.check_count("max_steps", max_steps, 1)
        self.min_steps = min(2, max_steps) if min_steps is None else min_steps
        methods = (*checks.METHODS, *own_methods(step))
        checks.check_pondering(max_steps, method, self.min_steps, epsilon, remainder, act_epsilon, methods)
        checks.check_prices(lambda_p, beta, tau)
        self.step, self.initial_state, self.encoder, self.project = step, initial_state, encoder, project
        self.max_steps, self.method, self.epsilon, self.remainder = max_steps, method, epsilon, remainder
        self.prior, self.lambda_p, self.beta, self.tau, self.act_epsilon = prior, lambda_p, beta, tau, act_epsilon
        self._own: str | None = None  # JSON of what somebody's own network was built for: a compiler wants a hash

    def _check_log_prior(self, log_prior: Any, values: Any) -> None:
        """A prior of one's own, None for one with a name; `values` are its float64 NumPy values if they are there."""
        if log_prior is None:
            self.named_log_prior(self.prior, self.lambda_p, self.max_steps)  # says what it cannot be made of
        else:
            checks.check_floating("log_prior", log_prior)
            checks.check_shape("log_prior", log_prior, (self.max_steps,), "max_steps")
        if values is not None:
            checks.check_distribution("log_prior", values, checks.dtype_name(log_prior))

    def _step_by_step(self, x: Any, **options: Any) -> Pondered:
        """`ponder` with the step, of the input itself."""
        raise NotImplementedError

    def variables(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Parameters, and the other variables (running statistics, random keys), by name.

        The names are paths in the module, of a network of the paper below its step.
        """
        raise NotImplementedError

    def every_step(self, x: Any, max_steps: int | None = None) -> Pondered:
        """All steps of all examples, whatever halts; of a method of the step's own what it gives."""
        method = self.method if self.method in own_methods(self.step) else "repeat"
        return self._ponder(x, max_steps, method, None)

    def _is_changed(self) -> bool:
        """Whether this one step is not as its class says, or somebody watches its calls: no fast unroll sees that."""
        return False

    def _check_unrolled(self, found: Any, max_steps: int) -> None:
        checks.check_unrolled(found, max_steps)

    def _ponder(self, x: Any, max_steps: int | None, method: str, epsilon: float | None) -> Pondered:
        """By the step's own fast unroll where it has one, else step by step."""
        steps = self.max_steps if max_steps is None else max_steps
        epsilon = self.epsilon if epsilon is AS_BUILT else epsilon
        limits = {"min_steps": min(self.min_steps, steps), "epsilon": epsilon, "act_epsilon": self.act_epsilon}
        step, unrolls = self.step, self._starts_itself and self.project is None
        if unrolls and method in own_methods(step):
            checks.check_count("max_steps", steps, 1)
            return step.unroll_by(method, x, max_steps=steps, act_epsilon=self.act_epsilon)
        if unrolls and unrolls_own_steps(type(step)) and not self._is_changed():
            checks.check_pondering(steps, method, remainder=self.remainder, **limits)
            rule = self.maths.halt_rule(method, **limits)
            most = 1 if method == "once" else steps
            found = step.unroll(x, most, rule)
            if found is not None:
                self._check_unrolled(found, most)
                y_hat, z, state, lengths = found
                return self.maths.pondered(y_hat, z, lengths, state, method, self.remainder, cut=rule is not None)
        return self._step_by_step(x, max_steps=steps, method=method, remainder=self.remainder, **limits)

    def start(self, x: Any) -> tuple[Any, Any]:
        """What the step sees of an input (None after an encoder), and h₀."""
        starts: Any = self.step if self._starts_itself else self
        project = getattr(starts, "project", None) if self.project is None else self.project
        x = x if project is None else project(x)
        return (None, self.encoder(x)) if self.encoder is not None else (x, starts.initial_state(x))

    def log_prior_over(self, steps: int, like: Any) -> Any:
        """The log-prior over 1..max_steps, or over `steps` if there are more of them, in a dtype like the logits'."""
        if self.log_prior is None:
            dtype = "float64" if checks.dtype_name(like) == "float64" else "float32"
            return self.named_log_prior(self.prior, self.lambda_p, max(steps, self.max_steps), dtype=dtype)
        if steps > self.max_steps:
            raise ValueError(f"log_prior has {self.max_steps} steps, fewer than the {steps} that were run")
        return self.log_prior[...]

    def loss(self, out: Pondered, targets: Any, criterion: Callable, *, weights: Any = None) -> PonderLoss:
        """The training loss and its parts (M6).

        Args:
          out: what calling the module gave.
          targets: `[...batch, ...]`, or a tree of such arrays.
          criterion: any loss of a prediction and a target, one value per example (not averaged over the batch).
          weights: `[...batch]`; padding has weight 0 and no influence, whatever its predictions and targets are.
        """
        prior = self.log_prior_over(len(out.halt_logits), out.halt_logits) if self.method == "ponder" else None
        given = {"log_prior": prior, "weights": weights, "beta": self.beta, "tau": self.tau}
        return self.maths.training_loss(out, targets, criterion, **given)

    @property
    def halting(self) -> Halting:
        """How it ponders, as plain values."""
        return Halting(**{each.name: getattr(self, each.name) for each in fields(Halting)})

    @property
    def settings(self) -> Any:
        """The settings of a network of the paper (`ponder_ref.models`); None for any other, be it made of one."""
        settings = getattr(self.step, "settings", None) if self._starts_itself and self.project is None else None
        kind, made = getattr(settings, "kind", None), type(self.step)
        of_paper = made.__qualname__ == "Step" and made.__module__ == f"{self.maths.__package__}.models.{kind}"
        return settings if of_paper else None

    @property
    def network(self) -> Network:
        """What it is, in plain values: enough to build it again, with `build` if it is not of the paper."""
        if self.settings is not None:
            return Network(self.settings, self.halting)
        unknown = Own(type(self.step).__qualname__)
        return Network(unknown if self._own is None else from_json(json.loads(self._own)).model, self.halting)

    def save(self, folder: str | Path) -> Path:
        """Writes the network into a folder, from which `load` of any backend reads it; the file's path."""
        from ponder_ref.runtime.saved import write_saved  # needs what only files need

        if self.log_prior is not None:
            raise ValueError("a network is saved with the name of its prior, and log_prior has none")
        parts = ({name: self.as_array(x) for name, x in part.items()} for part in self.variables())
        return write_saved(folder, self.network, *parts)


def own_methods(step: Any) -> tuple[str, ...]:
    """The methods of halting that are for this step network alone."""
    return getattr(step, "OWN_METHODS", ())


def unrolls_own_steps(kind: type) -> bool:
    """Whether steps of a class have a fast unroll of just these steps: no subclass has replaced what they do."""
    owner = next((each for each in kind.__mro__ if "unroll" in vars(each)), None)
    names = ("forward", "__call__", "project", "initial_state")
    return owner is not None and all(getattr(kind, name, None) is getattr(owner, name, None) for name in names)


def net_of(kind: type, step_of: Callable, network: Network, build: Callable | None) -> Any:
    """The PonderNet of a class that is described; `build(problem) -> PonderNet` makes one of somebody's own."""
    if not network.is_own:
        if build is not None:
            raise ValueError(f"build must not be given for a network of the paper, here {network.model.kind!r}")
        return kind(step_of(network.model), **asdict(network.halting))
    if build is None:
        said = f"the function that makes this network ({network.model.name}): it is not of the paper"
        raise ValueError(f"build must be given, {said}")
    net = build(network.model.problem(network.halting))
    if not isinstance(net, kind):
        package = kind.__module__.partition(".")[0]
        raise ValueError(f"build must return a PonderNet of {package}, got {type(net).__name__}")
    network.check_built(net.halting)
    net._own = json.dumps(network.to_json())  # so that it can be saved with what it was built for
    return net
