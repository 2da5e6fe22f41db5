"""Training of any PonderNet: many updates a call, NumPy in and out, the same on every backend."""

import copy
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from ponder_ref import checks
from ponder_ref.base import AdamState, Batch, MuonState, Pondered, Predicted
from ponder_ref.runtime.network import Network
from ponder_ref.runtime.settings import Optimiser
from ponder_ref.runtime.train import TrainState, flatten_state, learning_rates, split_state
from ponder_ref.trees import map_tree
from ponder_torch.act import act_output
from ponder_torch.arrays import to_numpy
from ponder_torch.criteria import binary_cross_entropy, cross_entropy
from ponder_torch.halting import expected_steps
from ponder_torch.losses import weighted_mean
from ponder_torch.models import net_of
from ponder_torch.net import PonderNet, Tensors
from ponder_torch.optim import adam_update, clip_by_global_norm, global_norm, muon_update


def make_trainer(
    network: Network,
    optimiser: Optimiser,
    *,
    dtype: str = "float32",
    threads: int | None = None,
    build: Callable | None = None,
) -> "Trainer":
    """The trainer of a network that is described; `build(problem) -> PonderNet` makes one of somebody's own."""
    net, model = net_of(network, build), network.model
    own = {"seed": model.seed} if network.is_own else {}
    return Trainer(net, optimiser, output=model.output, dtype=dtype, threads=threads, **own)


class _Packed(NamedTuple):
    """A state between the updates of a chunk: Adam works entry by entry, so all its tensors are one vector."""

    adam: AdamState
    muon: dict[str, MuonState]
    update: int


def is_correct(output: str, y_hat: torch.Tensor, targets: torch.Tensor, axes: int) -> torch.Tensor:
    """Whether all answers of an example are right, as 0 or 1: signs of logits, or largest classes.

    `axes` is the number of axes in front of the answers.
    """
    right = (y_hat > 0) == (targets > 0) if output == "binary" else y_hat.argmax(-1) == targets
    return (right.flatten(axes).all(-1) if right.ndim > axes else right).to(y_hat.dtype)


@torch.no_grad()
def measure(net: PonderNet, output: str, out: Pondered, targets, weights) -> Tensors:
    """Exact expected accuracy and steps of a batch, and how many steps were run."""
    axes = out.halt_logits.ndim
    if out.act is not None:
        accuracy = is_correct(output, act_output(out.act.weights, out.y_hat), targets, axes - 1)
        steps = out.lengths.to(accuracy.dtype)
    else:
        accuracy = (torch.exp(out.log_p) * is_correct(output, out.y_hat, targets, axes)).sum(0)
        steps = expected_steps(out.log_p)
    run, steps_run = out.lengths.max(), getattr(net.step, "steps_run", None)
    if steps_run is not None:
        run = steps_run(run, 1 if net.method == "once" else net.max_steps)
    return {
        "accuracy": weighted_mean(accuracy, weights),
        "expected_steps": weighted_mean(steps, weights),
        "steps_run": run,
    }


class Trainer:
    """Trains a PonderNet; a function of state and batches, without files and without chance. The net is not changed.

    Args:
      net: any PonderNet.
      optimiser: Adam, or Muon for matrices: those that a network of the paper names, of others the weights of their
        linear layers.
      output: "binary" (a logit per answer) or "classes" (a logit per class and answer).
      dtype: of parameters and inputs.
      seed: what is drawn inside the network, say by dropout, is a function of it and of the number of the update.
    """

    def __init__(
        self,
        net: PonderNet,
        optimiser: Optimiser,
        *,
        output: str,
        dtype: str = "float32",
        threads: int | None = None,
        seed: int = 0,
    ):
        if threads is not None:
            torch.set_num_threads(threads)
        checks.check_choice("output", output, ("binary", "classes"))
        checks.check_dtype(dtype)
        self.net = net = copy.deepcopy(net)
        self.optimiser, self.output, self.dtype = optimiser, output, getattr(torch, dtype)
        self.seed = None if net.settings is not None else seed
        self.criterion = binary_cross_entropy if output == "binary" else cross_entropy
        net.to(self.dtype).train()
        self.params, rest = _parts(net)
        if not self.params:
            raise ValueError("the network must have parameters to train, got none")
        self.device = next(iter(self.params.values())).device
        matrices = set() if optimiser.optimiser != "muon" else _matrices(net)
        self.by_muon = [name for name in self.params if name in matrices]
        self.by_adam = [name for name in self.params if name not in matrices]
        self.turned = net.settings is None  # a linear layer of torch has its weight as [out, in]
        self.first = {name: x.detach().clone() for name, x in self.params.items()}
        self.first_rest = {name: x.detach().clone() for name, x in rest.items()}
        # Adam's parameters become views of one vector, so that an update writes them all at once.
        self.vector = _joined([self.params[name] for name in self.by_adam], self.dtype, self.device)

    def init(self, params: Mapping[str, np.ndarray] | None = None) -> TrainState:
        """The state before the first update; with None it has the parameters that the network was built with."""
        if params is not None:
            checks.check_arrays("the network", params, {name: x.shape for name, x in self.params.items()})
        held = self.first if params is None else {name: self._tensor(params[name]) for name in self.params}
        m = {name: torch.zeros_like(x) for name, x in held.items()}
        v = {name: torch.zeros_like(held[name]) for name in self.by_adam}
        return TrainState(dict(held), m, v, dict(self.first_rest), 0)

    def load(self, arrays: Mapping[str, np.ndarray]) -> TrainState:
        """The state that `dump` gave, on whichever backend."""
        shapes = ({name: tuple(x.shape) for name, x in part.items()} for part in (self.params, self.first_rest))
        *parts, update = split_state(arrays, *shapes, by_muon=self.by_muon)
        return TrainState(*(self._cast(part) for part in parts), update=update)

    def dump(self, state: TrainState) -> dict[str, np.ndarray]:
        """The state by name, as copies in C order."""
        arrays = flatten_state(state.params, state.m, state.v, state.update, state.rest)
        return {name: np.array(_plain(x), order="C") for name, x in arrays.items()}

    def train_steps(self, state: TrainState, chunk: Batch) -> tuple[TrainState, dict[str, np.ndarray]]:
        """K updates, one for each entry of the chunk's first axis; metrics `[K]` by name."""
        rates = learning_rates(self.optimiser, state.update + 1, len(chunk.targets))
        data = self._cast((chunk.inputs, chunk.targets, chunk.weights))
        self._put(state)
        packed, history = self._pack(state), []
        with self._forked():
            for k in range(len(chunk.targets)):
                self._sow(packed.update + 1)
                batch = map_tree(lambda x, k=k: x[k], data)
                rate = {name: float(each[k]) for name, each in rates.items()}
                packed, metrics = self._update(packed, *batch, rates=rate)
                history.append(metrics)
        measured = {name: torch.stack([metrics[name] for metrics in history]) for name in history[0]}
        return self._unpack(packed), map_tree(_plain, measured)

    @torch.no_grad()
    def unroll(self, state: TrainState, inputs: Any, *, max_steps: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Predictions `[N, batch, ...]` and halting logits `[N, batch]` of all steps, for evaluation."""
        with self._evaluating(state):
            out = self.net.every_step(self._cast(inputs), max_steps)
        return to_numpy(out.y_hat), to_numpy(out.halt_logits)

    def predict(self, state: TrainState, inputs: Any, **options: Any) -> Predicted:
        """Answers, steps and rows as NumPy values, by `net.predict` with its options."""
        with self._evaluating(state):
            return map_tree(_plain, self.net.predict(self._cast(inputs), **options))

    def _tensor(self, x: np.ndarray) -> torch.Tensor:
        """A copy on the device of the network, floats in the dtype of the training."""
        made = torch.from_numpy(np.array(x))
        return made.to(self.device, self.dtype if made.is_floating_point() else None)

    def _cast(self, tree: Any) -> Any:
        return map_tree(self._tensor, tree)

    @torch.no_grad()
    def _put(self, state: TrainState) -> None:
        """Gives the network the variables of a state."""
        for name, part in self._split(self.vector).items():
            self.params[name].data = part
        for name, x in state.params.items():
            self.params[name].copy_(x)
        for name, x in self._others().items():
            x.copy_(state.rest[name])

    def _others(self) -> Tensors:
        """The variables that are not trained, as they are now: a network may replace its buffers."""
        return _parts(self.net)[1] if self.first_rest else {}

    @contextmanager
    def _evaluating(self, state: TrainState) -> Iterator[None]:
        """The network with the variables of a state and in evaluation mode; afterwards each part is in its own."""
        modes = [(module, module.training) for module in self.net.modules()]
        self._put(state)
        self.net.eval()
        try:
            yield
        finally:
            for module, training in modes:
                module.training = training

    @contextmanager
    def _forked(self) -> Iterator[None]:
        """What is drawn in here has no influence on what is drawn elsewhere."""
        devices = [self.device] if self.device.type != "cpu" else []
        kind = "cuda" if self.device.type == "cpu" else self.device.type
        with torch.random.fork_rng(devices, enabled=self.seed is not None, device_type=kind):
            yield

    def _sow(self, update: int) -> None:
        """A network of somebody's own may draw numbers: those of an update follow from the seed and its number."""
        if self.seed is not None:
            torch.manual_seed(int(np.random.SeedSequence([self.seed, update]).generate_state(1, np.uint64)[0]))

    def _pack(self, state: TrainState) -> _Packed:
        parts = ([part[name] for name in self.by_adam] for part in state[:3])
        vectors = (_joined(part, self.dtype, self.device) for part in parts)
        muon = {name: MuonState(state.params[name], state.m[name]) for name in self.by_muon}
        return _Packed(AdamState(*vectors), muon, state.update)

    def _unpack(self, packed: _Packed) -> TrainState:
        params, m, v = (self._split(vector) for vector in packed.adam)
        params |= {name: state.param for name, state in packed.muon.items()}
        m |= {name: state.m for name, state in packed.muon.items()}
        rest = {name: x.detach().clone() for name, x in self._others().items()}
        params, m = ({name: part[name] for name in self.params} for part in (params, m))
        return TrainState(params, m, v, rest, packed.update)

    def _split(self, vector: torch.Tensor) -> Tensors:
        """Adam's tensors by name, as views."""
        shapes = [self.params[name].shape for name in self.by_adam]
        parts = vector.split([math.prod(shape) for shape in shapes])
        return {name: part.view(shape) for name, part, shape in zip(self.by_adam, parts, shapes, strict=True)}

    def _update(self, packed: _Packed, inputs, targets, weights, *, rates: dict[str, float]):
        """One update: gradients, clipping, Adam or Muon for each parameter."""
        out = self.net(inputs)
        parts = self.net.loss(out, targets, self.criterion, weights=weights)
        names = [*self.by_adam, *self.by_muon]
        leaves = [self.params[name] for name in names]
        found = torch.autograd.grad(parts.loss, leaves, allow_unused=True, materialize_grads=True)
        grads = dict(zip(names, found, strict=True))
        metrics = {name: getattr(parts, name).detach() for name in ("loss", "loss_rec", "loss_reg")}
        metrics |= measure(self.net, self.output, out, targets, weights)
        with torch.no_grad():
            if self.optimiser.clip is None:
                metrics["grad_norm"] = global_norm(grads)
            else:
                grads, metrics["grad_norm"] = clip_by_global_norm(grads, max_norm=self.optimiser.clip)
            return self._step(packed, grads, rates), metrics

    def _step(self, packed: _Packed, grads: Tensors, rates: dict[str, float]) -> _Packed:
        decay = {"step": packed.update + 1, "weight_decay": self.optimiser.weight_decay}
        adam, muon = packed.adam, {}
        if self.by_adam:
            param, m, v = adam
            grad = torch.cat([grads[name].flatten() for name in self.by_adam])
            adam = adam_update(param, grad, m, v, learning_rate=rates["adam"], **decay)
            self.vector.copy_(adam.param)
        for name, (param, m) in packed.muon.items():
            given = (x.T if self.turned else x for x in (param, grads[name], m))
            new = muon_update(*given, learning_rate=rates["muon"], **decay)
            muon[name] = MuonState(*(x.T for x in new)) if self.turned else new
            self.params[name].copy_(muon[name].param)
        return _Packed(adam, muon, packed.update + 1)


def _parts(net: PonderNet) -> tuple[Tensors, Tensors]:
    """The parameters that are trained, and all other variables."""
    params, rest = net.variables()
    fixed = {name: x for name, x in params.items() if not x.requires_grad}
    return {name: x for name, x in params.items() if name not in fixed}, {**rest, **fixed}


def _matrices(net: PonderNet) -> set[str]:
    """The parameters that Muon trains."""
    if net.settings is not None:
        return set(net.settings.matrices())
    return {f"{name}.weight".lstrip(".") for name, module in net.named_modules() if isinstance(module, nn.Linear)}


def _joined(parts: list[torch.Tensor], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """All entries as one vector."""
    return torch.cat([torch.empty(0, dtype=dtype, device=device), *(x.detach().flatten() for x in parts)])


def _plain(x: Any) -> Any:
    return to_numpy(x) if isinstance(x, torch.Tensor) else x
