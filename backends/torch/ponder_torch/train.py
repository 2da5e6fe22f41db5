"""Training of canonical models: many updates a call, NumPy in and out, the same on every backend."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch

from ponder_ref.base import AdamState, Batch, MuonState, Pondered
from ponder_ref.models import Model, check_parameters
from ponder_ref.models.pairs import PairTransformer
from ponder_ref.runtime.settings import Method, Optimiser
from ponder_ref.runtime.train import flatten_state, learning_rates, split_state
from ponder_ref.trees import map_tree
from ponder_torch.act import act_output
from ponder_torch.criteria import binary_cross_entropy, cross_entropy
from ponder_torch.halting import expected_steps
from ponder_torch.losses import weighted_mean
from ponder_torch.models import run_model
from ponder_torch.optim import adam_update, clip_by_global_norm, global_norm, muon_update
from ponder_torch.pondering import pondering_loss
from ponder_torch.priors import geometric_log_prior
from ponder_torch.rnn import Memory


def limit_threads(threads: int) -> None:
    """How many threads torch may use."""
    torch.set_num_threads(threads)


class TrainState(NamedTuple):
    """Parameters and moments by name, and the number of updates made."""

    params: dict[str, torch.Tensor]
    m: dict[str, torch.Tensor]
    v: dict[str, torch.Tensor]
    update: int


class _Packed(NamedTuple):
    """A state between the updates of a chunk: Adam works entry by entry, so all its tensors are one vector."""

    adam: AdamState
    muon: dict[str, MuonState]
    update: int


def is_correct(output: str, y_hat: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Whether a prediction is right, as 0 or 1: the sign of a logit, or the largest of the classes."""
    right = (y_hat > 0) == (targets > 0) if output == "binary" else y_hat.argmax(-1) == targets
    return right.to(y_hat.dtype)


@torch.no_grad()
def measure(model: Model, out: Pondered, targets, weights) -> dict[str, torch.Tensor]:
    """Exact expected accuracy and steps of a batch, and how many steps were run."""
    if out.act is not None:
        accuracy = is_correct(model.output, act_output(out.act.weights, out.y_hat), targets)
        steps = out.lengths.to(accuracy.dtype)
    else:
        accuracy = (torch.exp(out.log_p) * is_correct(model.output, out.y_hat, targets)).sum(0)
        steps = expected_steps(out.log_p)
    run = out.lengths.max()
    if isinstance(model, PairTransformer):  # whose steps are run stage by stage
        run = torch.full_like(run, len(out.y_hat))
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
        if threads is not None:
            limit_threads(threads)
        self.model, self.method, self.optimiser, self.dtype = model, method, optimiser, getattr(torch, dtype)
        self.by_muon = model.matrices() if optimiser.name == "muon" else ()
        self.by_adam = {name: shape for name, shape in model.shapes().items() if name not in self.by_muon}
        self._memory = Memory()
        self.log_prior = geometric_log_prior(method.lambda_p, method.max_steps, dtype=dtype)

    def init(self, params: Mapping[str, np.ndarray]) -> TrainState:
        """The state before the first update."""
        check_parameters(self.model, params)
        tensors = {name: torch.tensor(params[name], dtype=self.dtype) for name in self.model.shapes()}
        m = {name: torch.zeros_like(x) for name, x in tensors.items()}
        v = {name: torch.zeros_like(x) for name, x in tensors.items() if name not in self.by_muon}
        return TrainState(tensors, m, v, 0)

    def load(self, arrays: Mapping[str, np.ndarray]) -> TrainState:
        """The state that `dump` gave, on whichever backend."""
        *parts, update = split_state(arrays, self.model, self.by_muon)
        params, m, v = ({name: torch.tensor(x, dtype=self.dtype) for name, x in part.items()} for part in parts)
        return TrainState(params, m, v, update)

    def dump(self, state: TrainState) -> dict[str, np.ndarray]:
        """The state by name, as copies in C order."""
        # np.array of a tensor is deprecated in NumPy 2: it asks for a copy in a way that torch does not know.
        return {name: np.array(np.asarray(x), order="C") for name, x in flatten_state(*state).items()}

    def train_steps(self, state: TrainState, chunk: Batch) -> tuple[TrainState, dict[str, np.ndarray]]:
        """K updates, one for each entry of the chunk's first axis; metrics `[K]` by name."""
        rates = learning_rates(self.optimiser, state.update + 1, len(chunk.targets))
        data = (self._cast(chunk.inputs), self._cast(chunk.targets), self._cast(chunk.weights))
        packed, history = self._pack(state), []
        for k in range(len(chunk.targets)):
            batch = map_tree(lambda x, k=k: x[k], data)
            packed, metrics = self._update(packed, *batch, rates={name: float(rate[k]) for name, rate in rates.items()})
            history.append(metrics)
        return self._unpack(packed), {
            name: torch.stack([metrics[name] for metrics in history]).numpy() for name in history[0]
        }

    @torch.inference_mode()
    def unroll(self, state: TrainState, inputs: Any, *, max_steps: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Predictions `[N, batch, ...]` and halting logits `[N, batch]` of all steps, for evaluation."""
        steps = max_steps or self.method.max_steps
        out = run_model(self.model, state.params, self._cast(inputs), max_steps=steps, **self.method.evaluation())
        return out.y_hat.numpy(), out.halt_logits.numpy()

    def _cast(self, tree):
        """NumPy arrays to torch, floats in the dtype of the training."""

        def leaf(x):
            x = torch.from_numpy(np.array(x))
            return x.to(self.dtype) if x.is_floating_point() else x

        return map_tree(leaf, tree)

    def _loss(self, params, inputs, targets, weights):
        out = run_model(self.model, params, inputs, **self.method.pondering(), memory=self._memory)
        criterion = binary_cross_entropy if self.model.output == "binary" else cross_entropy
        prior = self.log_prior if self.method.name == "ponder" else None
        prices = {"beta": self.method.beta, "tau": self.method.tau}
        parts = pondering_loss(out, targets, criterion, log_prior=prior, weights=weights, **prices)
        measured = measure(self.model, out, targets, weights)
        return parts.loss, {"loss": parts.loss, "loss_rec": parts.loss_rec, "loss_reg": parts.loss_reg, **measured}

    def _pack(self, state: TrainState) -> _Packed:
        vectors = (torch.cat([part[name].flatten() for name in self.by_adam]) for part in state[:3])
        muon = {name: MuonState(state.params[name], state.m[name]) for name in self.by_muon}
        return _Packed(AdamState(*vectors), muon, state.update)

    def _unpack(self, packed: _Packed) -> TrainState:
        params, m, v = (self._split(vector) for vector in packed.adam)
        params |= {name: state.param for name, state in packed.muon.items()}
        m |= {name: state.m for name, state in packed.muon.items()}
        ordered = self.model.shapes()
        return TrainState(
            {name: params[name] for name in ordered}, {name: m[name] for name in ordered}, v, packed.update
        )

    def _split(self, vector: torch.Tensor) -> dict[str, torch.Tensor]:
        """Adam's tensors by name, as views."""
        parts = vector.split([math.prod(shape) for shape in self.by_adam.values()])
        return {name: part.view(shape) for (name, shape), part in zip(self.by_adam.items(), parts, strict=True)}

    def _update(self, packed: _Packed, inputs, targets, weights, *, rates: dict[str, float]):
        """One update: gradients, clipping, Adam or Muon for each parameter."""
        params = self._split(packed.adam.param) | {name: state.param for name, state in packed.muon.items()}
        leaves = {name: param.detach().requires_grad_() for name, param in params.items()}
        loss, metrics = self._loss(leaves, inputs, targets, weights)
        grads = dict(zip(leaves, torch.autograd.grad(loss, list(leaves.values())), strict=True))
        metrics = {name: value.detach() for name, value in metrics.items()}
        with torch.no_grad():
            if self.optimiser.clip is None:
                metrics["grad_norm"] = global_norm(grads)
            else:
                grads, metrics["grad_norm"] = clip_by_global_norm(grads, max_norm=self.optimiser.clip)
            return self._step(packed, grads, rates), metrics

    def _step(self, packed: _Packed, grads: dict[str, torch.Tensor], rates: dict[str, float]) -> _Packed:
        decay = {"step": packed.update + 1, "weight_decay": self.optimiser.weight_decay}
        param, m, v = packed.adam
        grad = torch.cat([grads[name].flatten() for name in self.by_adam])
        adam = adam_update(param, grad, m, v, learning_rate=rates["adam"], **decay)
        muon = {
            name: muon_update(param, grads[name], m, learning_rate=rates["muon"], **decay)
            for name, (param, m) in packed.muon.items()
        }
        return _Packed(adam, muon, packed.update + 1)
