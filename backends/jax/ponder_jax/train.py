"""Training of canonical models: many updates a call, NumPy in and out, the same on every backend."""

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ponder_jax.act import act_output
from ponder_jax.criteria import binary_cross_entropy, cross_entropy
from ponder_jax.halting import expected_steps
from ponder_jax.losses import weighted_mean
from ponder_jax.models import run_model
from ponder_jax.optim import adam_update, clip_by_global_norm, global_norm, muon_update
from ponder_jax.pondering import pondering_loss
from ponder_jax.priors import geometric_log_prior
from ponder_ref.base import Batch, Pondered
from ponder_ref.models import Model, check_parameters
from ponder_ref.models.pairs import PairTransformer, stage_ends
from ponder_ref.runtime.settings import Method, Optimiser
from ponder_ref.runtime.train import flatten_state, learning_rates, split_state


def limit_threads(threads: int) -> None:
    """How many threads the compiled code may use; to be called before JAX is first used."""
    if threads == 1:
        flags = os.environ.get("XLA_FLAGS", "")
        if "xla_cpu_multi_thread_eigen" not in flags:
            os.environ["XLA_FLAGS"] = f"{flags} --xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"


class TrainState(NamedTuple):
    """Parameters and moments by name, and the number of updates made."""

    params: dict[str, jax.Array]
    m: dict[str, jax.Array]
    v: dict[str, jax.Array]
    update: int


def is_correct(output: str, y_hat: jax.Array, targets: jax.Array) -> jax.Array:
    """Whether a prediction is right, as 0 or 1: the sign of a logit, or the largest of the classes."""
    right = (y_hat > 0) == (targets > 0) if output == "binary" else y_hat.argmax(-1) == targets
    return right.astype(y_hat.dtype)


def measure(model: Model, out: Pondered, targets, weights) -> dict[str, jax.Array]:
    """Exact expected accuracy and steps of a batch, and how many steps were run."""
    if out.act is not None:
        accuracy = is_correct(model.output, act_output(out.act.weights, out.y_hat), targets)
        steps = out.lengths.astype(accuracy.dtype)
    else:
        accuracy = (jnp.exp(out.log_p) * is_correct(model.output, out.y_hat, targets)).sum(0)
        steps = expected_steps(out.log_p)
    run = out.lengths.max()
    if isinstance(model, PairTransformer):  # whose steps are run stage by stage
        ends = jnp.array(stage_ends(len(out.y_hat)), run.dtype)
        run = ends[jnp.searchsorted(ends, run)]
    return {
        "accuracy": weighted_mean(accuracy, weights),
        "expected_steps": weighted_mean(steps, weights),
        "steps_run": run,
    }


class Trainer:
    """Trains a canonical model; a function of state and batches, without files and without chance."""

    def __init__(
        self,
        model: Model,
        method: Method,
        optimiser: Optimiser,
        *,
        dtype: str = "float32",
        threads: int | None = None,
    ):
        del threads  # see limit_threads
        if dtype == "float64" and jnp.zeros((), "float64").dtype != "float64":
            raise ValueError("dtype float64 needs JAX_ENABLE_X64=1 in the environment, got float32's default")
        self.model, self.method, self.optimiser, self.dtype = model, method, optimiser, dtype
        self.by_muon = model.matrices() if optimiser.name == "muon" else ()
        self.log_prior = geometric_log_prior(method.lambda_p, method.max_steps, dtype=dtype)
        self._chunk = jax.jit(self._train_chunk)
        self._unroll = jax.jit(self._unroll_model, static_argnames="max_steps")

    def init(self, params: Mapping[str, np.ndarray]) -> TrainState:
        """The state before the first update."""
        check_parameters(self.model, params)
        arrays = {name: jnp.asarray(params[name], self.dtype) for name in self.model.shapes()}
        m = {name: jnp.zeros_like(x) for name, x in arrays.items()}
        v = {name: jnp.zeros_like(x) for name, x in arrays.items() if name not in self.by_muon}
        return TrainState(arrays, m, v, 0)

    def load(self, arrays: Mapping[str, np.ndarray]) -> TrainState:
        """The state that `dump` gave, on whichever backend."""
        *parts, update = split_state(arrays, self.model, self.by_muon)
        params, m, v = ({name: jnp.array(x, self.dtype) for name, x in part.items()} for part in parts)
        return TrainState(params, m, v, update)

    def dump(self, state: TrainState) -> dict[str, np.ndarray]:
        """The state by name, as copies in C order."""
        return {name: np.array(x, order="C") for name, x in flatten_state(*state).items()}

    def train_steps(self, state: TrainState, chunk: Batch) -> tuple[TrainState, dict[str, np.ndarray]]:
        """K updates, one for each entry of the chunk's first axis; metrics `[K]` by name."""
        count = len(chunk.targets)
        numbers = np.arange(state.update + 1, state.update + count + 1, dtype=np.int32)
        rates = self._cast(learning_rates(self.optimiser, state.update + 1, count))
        data = (self._cast(chunk.inputs), jnp.asarray(chunk.targets), self._cast(chunk.weights))
        (params, m, v), metrics = self._chunk((state.params, state.m, state.v), data, numbers, rates)
        return TrainState(params, m, v, state.update + count), {name: np.asarray(x) for name, x in metrics.items()}

    def unroll(self, state: TrainState, inputs: Any, *, max_steps: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Predictions `[N, batch, ...]` and halting logits `[N, batch]` of all steps, for evaluation."""
        y_hat, z = self._unroll(state.params, self._cast(inputs), max_steps=max_steps or self.method.max_steps)
        return np.asarray(y_hat), np.asarray(z)

    def _cast(self, tree):
        """NumPy arrays to JAX, floats in the dtype of the training."""
        return jax.tree.map(lambda x: jnp.asarray(x, self.dtype if np.issubdtype(x.dtype, np.floating) else None), tree)

    def _loss(self, params, inputs, targets, weights):
        out = run_model(self.model, params, inputs, **self.method.pondering())
        criterion = binary_cross_entropy if self.model.output == "binary" else cross_entropy
        prior = self.log_prior if self.method.name == "ponder" else None
        prices = {"beta": self.method.beta, "tau": self.method.tau}
        parts = pondering_loss(out, targets, criterion, log_prior=prior, weights=weights, **prices)
        measured = measure(self.model, out, targets, weights)
        return parts.loss, {"loss": parts.loss, "loss_rec": parts.loss_rec, "loss_reg": parts.loss_reg, **measured}

    def _train_chunk(self, carry, data, numbers, rates):
        return jax.lax.scan(lambda carry, batch: self._update(carry, *batch), carry, (data, numbers, rates))

    def _update(self, carry, data, number, rates):
        """One update: gradients, clipping, Adam or Muon for each parameter."""
        params, m, v = carry
        grads, metrics = jax.grad(self._loss, has_aux=True)(params, *data)
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
        return (new_params, new_m, new_v), metrics

    def _unroll_model(self, params, inputs, max_steps: int):
        out = run_model(self.model, params, inputs, max_steps=max_steps, **self.method.evaluation())
        return out.y_hat, out.halt_logits
