"""An update of a task's model and its bare matrix products, timed side by side: what the benchmarks of tasks share."""

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from benchmarks.shared import Run, compared, import_or_skip, interleaved, made
from ponder_ref.base import Batch
from ponder_ref.models import Model
from ponder_ref.runtime.contracts import Trainer
from ponder_ref.runtime.errors import Refused
from tasks.flags import make
from tasks.trainers import make_trainer

NEWTON_SCHULZ = 5  # iterations of Muon (spec annex/optim.md), of three products each
Shape = tuple[int, int, int, int]  # b, m, k, n: b products of [m, k] and [k, n]
Counted = tuple[int, Shape]  # how often, and which


class Work(NamedTuple):
    """Something to time: how to make it and how many examples, or updates, one run of it is worth."""

    make: Any
    size: int


def preset_config(task: Any, name: str, **given: Any) -> Any:
    """The config of a preset of a task; another name is refused."""
    if name not in task.PRESETS:
        raise Refused(f"--preset must be one of {', '.join(task.PRESETS)}, got {name!r}")
    return make(task.Config, task.PRESETS[name], given)


def train_chunk(task: Any, updates: range) -> Batch:
    """The batches of these updates with the masks of dropout, as a training makes them."""
    batch, c = task.batches("train", updates), task.config
    return batch._replace(inputs=task.model().with_masks(batch.inputs, c.seed, updates, c.max_steps))


def update_run(backend: str, task: Any, chunk: Batch, threads: int) -> Run:
    """The updates of a chunk, again and again."""
    import_or_skip(backend, f"pip install -e '.[{backend}]'")
    return trained(make_trainer(backend, task, threads), task.initial_parameters(), chunk, "loss")


def trained(trainer: Trainer, params: dict[str, np.ndarray] | None, chunk: Batch, metric: str) -> Run:
    """The updates of a chunk, again and again; the mean of a metric."""
    held = [trainer.init(params)]

    def run() -> float:
        held[0], metrics = trainer.train_steps(held[0], chunk)
        return float(metrics[metric].mean())

    return run


def with_gradients(forward: Iterable[Counted]) -> Iterator[Counted]:
    """Products and those of their gradients by both factors."""
    for count, (b, m, k, n) in forward:
        yield from ((count, shape) for shape in ((b, m, k, n), (b, m, n, k), (b, k, m, n)))


def muon_products(model: Model) -> Iterator[Counted]:
    """Those of Newton-Schulz for every matrix that Muon trains."""
    shapes = model.shapes()
    for name in model.matrices():
        m, n = sorted(shapes[name])
        yield from ((NEWTON_SCHULZ, shape) for shape in ((1, m, n, m), (1, m, m, m), (1, m, m, n)))


def tallied(products: Iterable[Counted]) -> list[Counted]:
    """Every shape once: the fewer there are, the sooner they are compiled."""
    counts: Counter[Shape] = Counter()
    for count, shape in products:
        counts[shape] += count
    return [(count, shape) for shape, count in counts.items() if count]


def torch_products(wanted: list[Counted], updates: int) -> Run:
    torch = import_or_skip("torch", "pip install -e '.[torch]'")
    torch.manual_seed(0)
    sizes = {size for _, (b, m, k, n) in wanted for size in ((b, m, k), (b, k, n))}
    operands = {size: torch.randn(size) if size[0] > 1 else torch.randn(size[1:]) for size in sizes}

    @torch.no_grad()
    def run() -> float:
        for _ in range(updates):
            for count, (b, m, k, n) in wanted:
                for _ in range(count):
                    _ = operands[b, m, k] @ operands[b, k, n]
        return 0.0

    return run


def jax_products(wanted: list[Counted], updates: int) -> Run:
    """One entry of the next product's factor comes of the one before: none is left out, doubled or hoisted."""
    jax = import_or_skip("jax", "pip install -e '.[jax]'")
    jnp, rng = jax.numpy, np.random.default_rng(0)
    sizes = {size for _, (b, m, k, n) in wanted for size in ((b, m, k), (b, k, n))}
    operands = {size: jnp.asarray(rng.normal(size=size if size[0] > 1 else size[1:]), jnp.float32) for size in sizes}

    def one(shape: Shape, _, carry):
        b, m, k, n = shape
        operands, total = carry
        left = operands[b, m, k]
        left = left.at[(0,) * left.ndim].set(total)
        out = left @ operands[b, k, n]
        return operands | {(b, m, k): left}, out[(0,) * out.ndim] * 1e-6

    @partial(jax.jit, donate_argnums=0)
    def run_all(carry):
        def update(_, carry):
            for count, shape in wanted:
                carry = jax.lax.fori_loop(0, count, partial(one, shape), carry)
            return carry

        return jax.lax.fori_loop(0, updates, update, carry)

    held = [(operands, jnp.zeros(()))]

    def run() -> float:
        held[0] = run_all(held[0])
        return float(held[0][1])

    return run


PRODUCTS = {"torch": torch_products, "jax": jax_products}


def times(works: dict[str, Work], repetitions: int) -> dict[str, list[float]]:
    """Seconds of one example, or update, of everything that can be made here, repetition by repetition."""
    runs = made({name: work.make for name, work in works.items()})
    seconds = interleaved(runs, repetitions)
    return {name: [t / works[name].size for t in measured] for name, measured in seconds.items()}


def over(each: dict[str, list[float]], name: str, base: str) -> float:
    """The median of the ratios of two times in the same repetition: the figure that a table has, too."""
    return compared(each[name], each[base])[1]
