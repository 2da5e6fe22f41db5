"""Updates of the parity models at the paper's sizes: against labml-nn, against the bare matrix products, and with ε.

Batch 128, 64 bits, 128 units, N = 20, float32. Everything is timed in turn in one process, on the same threads.
"""

import argparse
from typing import Any

import numpy as np

from benchmarks.products import trained
from benchmarks.report import Report
from benchmarks.shared import NO_FRAMEWORK, Run, Skipped, import_or_skip, interleaved, limit_threads, made
from ponder_ref.base import Batch
from ponder_ref.models.rnn import Rnn
from ponder_ref.runtime.network import Network
from ponder_ref.runtime.settings import Halting, Optimiser
from tasks.parity import Parity, ParityConfig

BATCH, BITS, HIDDEN, STEPS = 128, 64, 128, 20
CHUNK = 10  # updates a run; what is made once a chunk is shared by them, as in training
EPSILON = 0.05


def chunk() -> Batch:
    return Parity(ParityConfig(bits=BITS, hidden=HIDDEN, batch_size=BATCH)).batches("train", range(CHUNK))


def trainer_run(backend: str, *, epsilon: float | None = None, halting: float | None = None) -> Run:
    """Updates of the canonical RNN; with `halting` its λ is that number for good, and nothing is learnt."""
    module = import_or_skip(f"ponder_{backend}.train", f"pip install -e '.[{backend}]'")
    model, rate = Rnn(inputs=BITS, hidden=HIDDEN), 3e-4 if halting is None else 0.0
    network = Network(model, Halting(max_steps=STEPS, epsilon=epsilon))
    trainer = module.make_trainer(network, Optimiser(learning_rate=rate))
    params = model.initial_parameters(0)
    if halting is not None:
        params["halt.w"] = np.zeros_like(params["halt.w"])
        params["halt.b"] = np.full(1, np.log(halting / (1 - halting)))
    return trained(trainer, params, chunk(), "steps_run")


def labml_gru() -> Run:
    """labml-nn's own GRU model, losses and loop, with torch's Adam."""
    torch = import_or_skip("torch", "pip install -e '.[torch]'")
    peer = import_or_skip("labml_nn.adaptive_computation.ponder_net", "pip install --no-deps labml-nn==0.5.1")
    torch.manual_seed(0)
    net = peer.ParityPonderGRU(BITS, HIDDEN, STEPS)
    rec = peer.ReconstructionLoss(torch.nn.BCEWithLogitsLoss(reduction="none"))
    reg, optimizer = peer.RegularizationLoss(0.2, STEPS), torch.optim.Adam(net.parameters(), 3e-4)
    x, y = _tensors(torch)

    def run() -> float:
        loss = torch.zeros(())
        for k in range(CHUNK):
            p, y_hat, _, _ = net(x[k])
            loss = rec(p, y_hat, y[k]) + 0.01 * reg(p)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return loss.item()

    return run


def _tensors(torch: Any) -> tuple[Any, Any]:
    batch = chunk()
    return torch.from_numpy(batch.inputs), torch.from_numpy(batch.targets.astype(np.float32))


def torch_gru() -> Run:
    """The same GRU cell in our wrapper: the input's share of the gates is computed once."""
    torch = import_or_skip("torch", "pip install -e '.[torch]'")
    backend = import_or_skip("ponder_torch", "pip install -e '.[torch]'")
    functional = torch.nn.functional
    torch.manual_seed(0)
    cell, heads = torch.nn.GRUCell(BITS, HIDDEN), torch.nn.Linear(HIDDEN, 2)

    def step(gates, h):
        both_x, n_x = gates
        both_h, n_h = functional.linear(h, cell.weight_hh, cell.bias_hh).split([2 * HIDDEN, HIDDEN], -1)
        reset, update = torch.sigmoid(both_x + both_h).chunk(2, -1)
        new = torch.tanh(torch.addcmul(n_x, reset, n_h))
        return torch.addcmul(new, update, h - new)

    def readout(h):
        y_hat, z = heads(h).unbind(-1)
        return y_hat, z

    prior = backend.geometric_log_prior(0.2, STEPS)
    params = [*cell.parameters(), *heads.parameters()]
    optimizer = torch.optim.Adam(params, 3e-4)
    x, y = _tensors(torch)

    def run() -> float:
        loss = torch.zeros(())
        for k in range(CHUNK):
            gates = functional.linear(x[k], cell.weight_ih, cell.bias_ih).split([2 * HIDDEN, HIDDEN], -1)
            out = backend.ponder(step, gates, x.new_zeros(BATCH, HIDDEN), max_steps=STEPS, readout=readout)
            loss = backend.training_loss(out, y[k], backend.binary_cross_entropy, log_prior=prior, beta=0.01).loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return loss.item()

    return run


def jax_gru() -> Run:
    """The same GRU cell in our wrapper, a chunk of updates in one call, optax's Adam."""
    jax = import_or_skip("jax", "pip install -e '.[jax]'")
    optax, backend = import_or_skip("optax", "pip install -e '.[jax]'"), import_or_skip("ponder_jax", "the clone")
    jnp = jax.numpy
    rng = np.random.default_rng(0)
    shapes = {"w_x": (BITS, 3 * HIDDEN), "b_x": (3 * HIDDEN,), "w_h": (HIDDEN, 3 * HIDDEN), "b_h": (3 * HIDDEN,)}
    shapes |= {"v": (HIDDEN, 2), "c": (2,)}
    params = {name: jnp.asarray(rng.normal(size=shape, scale=0.09), jnp.float32) for name, shape in shapes.items()}
    optimizer, prior = optax.adam(3e-4), backend.geometric_log_prior(0.2, STEPS)
    batch = chunk()

    def loss_of(params, x, y):
        def step(gates, h):
            r_x, u_x, n_x = gates
            r_h, u_h, n_h = jnp.split(h @ params["w_h"] + params["b_h"], 3, -1)
            reset, update = jax.nn.sigmoid(r_x + r_h), jax.nn.sigmoid(u_x + u_h)
            new = jnp.tanh(n_x + reset * n_h)
            return new + update * (h - new)

        def readout(h):
            both = h @ params["v"] + params["c"]
            return both[..., 0], both[..., 1]

        gates = tuple(jnp.split(x @ params["w_x"] + params["b_x"], 3, -1))
        start = jnp.zeros((BATCH, HIDDEN))
        out = backend.ponder(step, gates, start, max_steps=STEPS, readout=readout, unroll=4)
        return backend.training_loss(out, y, backend.binary_cross_entropy, log_prior=prior, beta=0.01).loss

    @jax.jit
    def train(carry, data):
        def update(carry, data):
            params, state = carry
            loss, grads = jax.value_and_grad(loss_of)(params, *data)
            changes, state = optimizer.update(grads, state)
            return (optax.apply_updates(params, changes), state), loss

        return jax.lax.scan(update, carry, data)

    held = [(params, optimizer.init(params))]
    data = jnp.asarray(batch.inputs), jnp.asarray(batch.targets, jnp.float32)

    def run() -> float:
        held[0], losses = train(held[0], data)
        return float(losses[-1])

    return run


def torch_products() -> Run:
    """The products of the RNN's update and nothing else: input, steps, heads, and their gradients."""
    torch = import_or_skip("torch", "pip install -e '.[torch]'")
    torch.manual_seed(0)
    x, w_x, w_h = torch.randn(BATCH, BITS), torch.randn(BITS, HIDDEN), torch.randn(HIDDEN, HIDDEN)
    h, wide, thin = torch.randn(BATCH, HIDDEN), torch.randn(STEPS * BATCH, HIDDEN), torch.randn(2, HIDDEN)
    small = torch.randn(STEPS * BATCH, 2)

    @torch.no_grad()
    def run() -> float:
        for _ in range(CHUNK):
            _ = x @ w_x
            for _ in range(STEPS):
                _ = h @ w_h
            for _ in range(STEPS - 1):
                _ = h @ w_h.T
            _ = wide.T @ wide
            _ = x.T @ h
            _, _, _ = torch.nn.functional.linear(wide, thin), small @ thin, small.T @ wide
        return 0.0

    return run


def jax_products() -> Run:
    """As torch's; the results are chained and summed, so that none is left out or hoisted from the loop."""
    jax = import_or_skip("jax", "pip install -e '.[jax]'")
    jnp = jax.numpy
    keys = iter(jax.random.split(jax.random.key(0), 8))
    x, w_x, w_h = (jax.random.normal(next(keys), s) for s in ((BATCH, BITS), (BITS, HIDDEN), (HIDDEN, HIDDEN)))
    h, wide = (jax.random.normal(next(keys), s) for s in ((BATCH, HIDDEN), (STEPS * BATCH, HIDDEN)))
    thin, small = (jax.random.normal(next(keys), s) for s in ((HIDDEN, 2), (STEPS * BATCH, 2)))

    @jax.jit
    def products(total):
        def update(total, _):
            start = h + total
            forth = jax.lax.fori_loop(0, STEPS, lambda _, a: a @ w_h, start)
            back = jax.lax.fori_loop(0, STEPS - 1, lambda _, a: a @ w_h.T, start)
            moved = wide + total
            parts = ((x + total) @ w_x, forth, back, moved.T @ wide, (x + total).T @ h)
            parts += (moved @ thin, (small + total) @ thin.T, small.T @ moved)
            return sum(part[0, 0] for part in parts) * 1e-30, None

        return jax.lax.scan(update, total, None, length=CHUNK)[0]

    held = [jnp.zeros(())]

    def run() -> float:
        held[0] = products(held[0])
        return float(held[0])

    return run


def training(options: argparse.Namespace) -> int:
    """Prints three tables of ratios."""
    limit_threads(options.threads)
    report = Report(
        "training",
        options,
        f"updates of parity models: batch {BATCH}, {BITS} bits, {HIDDEN} units, N = {STEPS}, float32,",
        f"{options.threads} thread(s), {options.repetitions} interleaved repetitions of {CHUNK} updates",
    )
    runs = made(
        {
            "labml-nn GRU, torch": labml_gru,
            "GRU in our wrapper, torch": torch_gru,
            "GRU in our wrapper, JAX": jax_gru,
            "RNN, torch": lambda: trainer_run("torch"),
            "RNN, JAX": lambda: trainer_run("jax"),
            "RNN's products, torch": torch_products,
            "RNN's products, JAX": jax_products,
        }
    )
    if not runs:
        raise Skipped(NO_FRAMEWORK)
    seconds = interleaved(runs, options.repetitions)
    base = next(iter(runs))
    report.table(f"time of an update over that of {base}", seconds, base)
    for framework in ("torch", "JAX"):
        names = f"RNN's products, {framework}", f"RNN, {framework}"
        if set(names) <= set(seconds):
            pair = {name: seconds[name] for name in names}
            report.table(f"{framework}: time over that of the bare products", pair, names[0])
    for backend in ("torch", "jax"):
        _epsilon(backend, options.repetitions, report)
    report.write()
    return 0


def _epsilon(backend: str, repetitions: int, report: Report) -> None:
    """Time with ε over time with N steps, beside the share of steps that were run."""
    runs = made({"N": lambda: trainer_run(backend, halting=0.2)})
    if not runs:
        return
    wanted = {count: 1 - EPSILON ** (1 / (count - 0.5)) for count in (5, 10, 20)}
    runs |= {f"ε, {count} steps": trainer_run(backend, epsilon=EPSILON, halting=lam) for count, lam in wanted.items()}
    counts = {name: run() for name, run in runs.items()}
    seconds = interleaved(runs, repetitions)
    steps = ", ".join(f"{n}: {c:.1f}" for n, c in counts.items())
    report.table(f"{backend}: time over that of N steps; ε = {EPSILON}, steps run: {steps}", seconds, "N")
