"""Training of any PonderNet: many updates a call, NumPy in and out, the same on every backend."""

import os
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from ponder_jax.act import act_output
from ponder_jax.criteria import binary_cross_entropy, cross_entropy
from ponder_jax.halting import expected_steps
from ponder_jax.losses import weighted_mean
from ponder_jax.models import net_of
from ponder_jax.net import Arrays, PonderNet, as_array, as_variable
from ponder_jax.optim import adam_update, clip_by_global_norm, global_norm, muon_update
from ponder_ref import checks
from ponder_ref.base import Batch, Pondered, Predicted
from ponder_ref.runtime.network import Network
from ponder_ref.runtime.settings import Optimiser
from ponder_ref.runtime.train import TrainState, flatten_state, learning_rates, split_state


def make_trainer(
    network: Network,
    optimiser: Optimiser,
    *,
    dtype: str = "float32",
    threads: int | None = None,
    build: Callable | None = None,
) -> "Trainer":
    """The trainer of a network that is described; `build(problem) -> PonderNet` makes one of somebody's own.

    Threads and float64 are settings of the whole process in JAX, and stay so: one thread is added to XLA_FLAGS of the
    environment, which counts if JAX has not computed anything yet; float64 sets jax_enable_x64. `Trainer` sets neither.
    """
    if threads == 1:
        flags = os.environ.get("XLA_FLAGS", "")
        if "xla_cpu_multi_thread_eigen" not in flags:
            os.environ["XLA_FLAGS"] = f"{flags} --xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    if dtype == "float64":
        jax.config.update("jax_enable_x64", True)
    net = net_of(network, build)
    return Trainer(net, optimiser, output=network.model.output, dtype=dtype, threads=threads)


def is_correct(output: str, y_hat: jax.Array, targets: jax.Array) -> jax.Array:
    """Whether all answers of an example are right, as 0 or 1, `[..., batch]`: signs of logits, or largest classes.

    targets are `[batch, ...answers]`, y_hat is `[..., batch, ...answers]`, or has the classes as one more axis.
    """
    right = (y_hat > 0) == (targets > 0) if output == "binary" else y_hat.argmax(-1) == targets
    return right.all(tuple(range(right.ndim - targets.ndim + 1, right.ndim))).astype(y_hat.dtype)


def measure(net: PonderNet, output: str, out: Pondered, targets, weights) -> dict[str, jax.Array]:
    """Exact expected accuracy and steps of a batch, and how many steps were run."""
    if out.act is not None:
        accuracy = is_correct(output, act_output(out.act.weights, out.y_hat), targets)
        steps = out.lengths.astype(accuracy.dtype)
    else:
        accuracy = (jnp.exp(out.log_p) * is_correct(output, out.y_hat, targets)).sum(0)
        steps = expected_steps(out.log_p)
    run: Any = out.lengths.max()
    if hasattr(net.step, "steps_run"):
        run = net.step.steps_run(run, 1 if net.method == "once" else net.max_steps)  # type: ignore[attr-defined]
    return {
        "accuracy": weighted_mean(accuracy, weights),
        "expected_steps": weighted_mean(steps, weights),
        "steps_run": run,
    }


def muon_names(net: PonderNet) -> tuple[str, ...]:
    """The parameters that Muon trains: those the settings say, of other networks the weights of linear layers."""
    if net.settings is not None:
        return net.settings.matrices()
    linear = [path for path, module in nnx.iter_modules(net) if isinstance(module, nnx.Linear)]
    return tuple(".".join(map(str, (*path, "kernel"))) for path in linear)


class Trainer:
    """Trains a PonderNet; a function of state and batches, without files and without chance. The net is not changed.

    Args:
      net: in training it is in training mode, `net.train()`, else in evaluation mode.
      optimiser: which, and its numbers.
      output: "binary" or "classes", what its predictions are (`ponder_ref.runtime.network.Problem`).
      dtype: of parameters and inputs.
    """

    def __init__(
        self,
        net: PonderNet,
        optimiser: Optimiser,
        *,
        output: str,
        dtype: str = "float32",
        threads: int | None = None,
    ):
        del threads  # see make_trainer
        checks.check_choice("output", output, ("binary", "classes"))
        if dtype == "float64" and jnp.asarray(np.zeros(())).dtype != "float64":
            raise ValueError("dtype float64 needs JAX_ENABLE_X64=1 in the environment, got float32's default")
        self.net = nnx.clone(net)
        nnx.pop(self.net, nnx.Intermediate)
        self.optimiser, self.output, self.dtype = optimiser, output, dtype
        self.by_muon = muon_names(net) if optimiser.optimiser == "muon" else ()
        self.net.train()
        self._graph, *parts = self.net.take_apart()
        self._names = [self.net.names_of(part) for part in parts]
        self._trees = [jax.tree.structure(part) for part in parts]
        self._criterion = binary_cross_entropy if output == "binary" else cross_entropy
        self.net.eval()
        self._chunk = jax.jit(self._train_chunk)
        self._unroll = jax.jit(self._unroll_net, static_argnames="max_steps")

    def init(self, params: Mapping[str, np.ndarray] | None = None) -> TrainState:
        """The state before the first update; None leaves the network the parameters that it was built with."""
        own, rest = self.net.variables()
        if params is not None:
            checks.check_arrays("the network", params, {name: x.shape for name, x in own.items()})
        arrays = {name: jnp.asarray(own[name] if params is None else params[name], self.dtype) for name in own}
        m = {name: jnp.zeros_like(x) for name, x in arrays.items()}
        v = {name: jnp.zeros_like(x) for name, x in arrays.items() if name not in self.by_muon}
        rest = {name: as_variable(as_array(x), x, self.dtype) for name, x in rest.items()}
        return TrainState(arrays, m, v, rest, 0)

    def load(self, arrays: Mapping[str, np.ndarray]) -> TrainState:
        """The state that `dump` gave, on any backend for a network of the paper."""
        kinds = self.net.variables()
        shapes = ({name: as_array(x).shape for name, x in part.items()} for part in kinds)
        *parts, update = split_state(arrays, *shapes, by_muon=self.by_muon)
        like = {name: x for part in kinds for name, x in part.items()}
        held = ({name: as_variable(x, like[name], self.dtype) for name, x in part.items()} for part in parts)
        return TrainState(*held, update=update)

    def dump(self, state: TrainState) -> dict[str, np.ndarray]:
        """The state by name, as copies in C order."""
        arrays = flatten_state(state.params, state.m, state.v, state.update, state.rest)
        return {name: as_array(x) for name, x in arrays.items()}

    def train_steps(self, state: TrainState, chunk: Batch) -> tuple[TrainState, dict[str, np.ndarray]]:
        """K updates, one for each entry of the chunk's first axis; metrics `[K]` by name."""
        count = len(chunk.targets)
        numbers = np.arange(state.update + 1, state.update + count + 1, dtype=np.int32)
        rates = self._cast(learning_rates(self.optimiser, state.update + 1, count))
        data = (self._cast(chunk.inputs), jnp.asarray(chunk.targets), self._cast(chunk.weights))
        (params, m, v, rest), metrics = self._chunk(state[:-1], data, numbers, rates)
        return TrainState(params, m, v, rest, state.update + count), {
            name: np.asarray(x) for name, x in metrics.items()
        }

    def unroll(self, state: TrainState, inputs: Any, *, max_steps: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Predictions `[N, batch, ...]` and halting logits `[N, batch]` of all steps, for evaluation."""
        steps = self.net.max_steps if max_steps is None else max_steps
        y_hat, z = self._unroll(state.params, state.rest, self._cast(inputs), max_steps=steps)
        return np.asarray(y_hat), np.asarray(z)

    def predict(self, state: TrainState, inputs: Any, **options: Any) -> Predicted:
        """Answers, steps and rows as NumPy values, by `net.predict` with its options."""
        out = self._merged(state.params, state.rest, training=False).predict(self._cast(inputs), **options)
        return jax.tree.map(np.asarray, out)

    def _cast(self, tree):
        """NumPy arrays to JAX, floats in the dtype of the training."""
        return jax.tree.map(lambda x: jnp.asarray(x, self.dtype if np.issubdtype(x.dtype, np.floating) else None), tree)

    def _merged(self, params: Arrays, rest: Arrays, *, training: bool) -> PonderNet:
        """The net with these variables."""
        parts = zip(self._trees, self._names, (params, rest), strict=True)
        states = [jax.tree.unflatten(tree, [arrays[name] for name in names]) for tree, names, arrays in parts]
        net = nnx.merge(self._graph, *states)
        if not training:
            net.eval()
        return net

    def _loss(self, params, rest, inputs, targets, weights):
        net = self._merged(params, rest, training=True)
        out = net(inputs)
        parts = net.loss(out, targets, self._criterion, weights=weights)
        measured = measure(net, self.output, out, targets, weights)
        changed = net.variables()[1]
        metrics = {"loss": parts.loss, "loss_rec": parts.loss_rec, "loss_reg": parts.loss_reg, **measured}
        return parts.loss, (metrics, {name: changed[name] for name in rest})

    def _train_chunk(self, carry, data, numbers, rates):
        return jax.lax.scan(lambda carry, batch: self._update(carry, *batch), carry, (data, numbers, rates))

    def _update(self, carry, data, number, rates):
        """One update: gradients, clipping, Adam or Muon for each parameter."""
        params, m, v, rest = carry
        grads, (metrics, rest) = jax.grad(self._loss, has_aux=True)(params, rest, *data)
        if self.optimiser.clip is None:
            metrics["grad_norm"] = global_norm(grads)
        else:
            grads, metrics["grad_norm"] = clip_by_global_norm(grads, max_norm=self.optimiser.clip)
        new_params, new_m, new_v = {}, {}, {}
        decay = {"step": number, "weight_decay": self.optimiser.weight_decay}
        for name, param in params.items():
            if name in self.by_muon:
                done = muon_update(param, grads[name], m[name], learning_rate=rates["muon"], **decay)
            else:
                done = adam_update(param, grads[name], m[name], v[name], learning_rate=rates["adam"], **decay)
                new_v[name] = done.v
            new_params[name], new_m[name] = done.param, done.m
        return (new_params, new_m, new_v, rest), metrics

    def _unroll_net(self, params, rest, inputs, max_steps: int):
        out = self._merged(params, rest, training=False).every_step(inputs, max_steps)
        return out.y_hat, out.halt_logits
