"""Updates of the bAbI model: batches by length against padding everything to 320 sentences, and the bare products.

Data, model and optimiser are those of a preset of `python -m tasks.babi`. Everything is timed in turn in one process.
"""

import argparse
import dataclasses
import statistics
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from benchmarks.shared import Run, Skipped, import_or_skip, interleaved, made, ratios
from ponder_ref.buckets import bucket_lengths, with_dropout
from ponder_ref.interface import Batch
from ponder_ref.models import matrices, parameter_shapes
from ponder_ref.settings import Transformer
from tasks.babi.encode import MAX_SENTENCES
from tasks.babi.task import Babi, BabiConfig
from tasks.config import make
from tasks.errors import Refused
from tasks.trainers import make_trainer

BASE, UNCUT, PADDED, BARE = "by length", "by length, whole stories", "padded to 320", "bare products"
NEWTON_SCHULZ = 5  # iterations of Muon (spec optim.md), of three products each
Shape = tuple[int, int, int, int]  # b, m, k, n: b products of [m, k] and [k, n]


class Work(NamedTuple):
    """Something to time: how to make it and how many examples one run of it is worth."""

    make: Any
    examples: int


def padded(task: Babi, chunk: Batch, count: int) -> Batch:
    """The first update of a chunk with `count` of its examples, evenly taken, all padded to 320 sentences."""
    chosen = np.linspace(0, chunk.targets.shape[1] - 1, count).round().astype(int)
    rows = []
    for length in bucket_lengths(chunk.inputs):
        words = chunk.inputs[f"words.{length}"][0]
        rows += list(np.pad(words, [(0, 0), (MAX_SENTENCES + 1 - length, 0), (0, 0)]))
    inputs = {f"words.{MAX_SENTENCES + 1}": np.stack([rows[i] for i in chosen])}
    inputs = with_dropout(task.model(), inputs, task.config.seed, 0, task.config.max_steps)
    rest = (array[:1, chosen] for array in chunk[1:])
    return Batch({name: array[None] for name, array in inputs.items()}, *rest)


def update_run(backend: str, task: Babi, chunk: Batch, threads: int) -> Run:
    """The updates of a chunk, again and again."""
    import_or_skip(backend, f"pip install -e '.[{backend}]'")
    trainer = make_trainer(backend, task, threads)
    held = [trainer.init(task.initial_parameters())]

    def run() -> float:
        held[0], metrics = trainer.train_steps(held[0], chunk)
        return float(metrics["loss"][-1])

    return run


def forward_products(model: Transformer, buckets: dict[int, int], steps: int) -> Iterator[tuple[int, Shape]]:
    """(how often, shape) of an update's forward products; `buckets`: rows of words with the question -> examples.

    The last step is wanted of the questions alone (M9), so only keys and values see all rows there.
    """
    d, width, attention, heads = model.embedding, model.transition, model.attention, model.heads
    e, rows, batch = attention // heads, sum(length * n for length, n in buckets.items()), sum(buckets.values())
    for count, queries in ((steps - 1, rows), (1, batch)):
        whole = queries == rows
        yield count, (1, rows, d, (3 if whole else 2) * attention)
        if not whole:
            yield count, (1, batch, d, attention)
        for length, n in buckets.items():
            seen = length if whole else 1
            yield count, (n * heads, seen, e, length)
            yield count, (n * heads, seen, length, e)
        yield count, (1, queries, attention, d)
        yield count, (1, queries, d, width)
        yield count, (1, queries, width, d)
    yield 1, (1, steps * batch, d, model.outputs + 1)


def products(model: Transformer, buckets: dict[int, int], steps: int, optimiser: str) -> list[tuple[int, Shape]]:
    """All products of an update: forward, by both factors for the gradient, and Muon's."""
    found = []
    for count, (b, m, k, n) in forward_products(model, buckets, steps):
        found += [(count, (b, m, k, n)), (count, (b, m, n, k)), (count, (b, k, m, n))]
    if optimiser == "muon":
        shapes = parameter_shapes(model)
        for name in matrices(model):
            m, n = sorted(shapes[name])
            found += [(NEWTON_SCHULZ, shape) for shape in ((1, m, n, m), (1, m, m, m), (1, m, m, n))]
    return [(count, shape) for count, shape in found if count]


def torch_products(wanted: list[tuple[int, Shape]], updates: int) -> Run:
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


def jax_products(wanted: list[tuple[int, Shape]], updates: int) -> Run:
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


def contenders(backend: str, config: BabiConfig, options: argparse.Namespace) -> dict[str, Work]:
    """Batches by length as the preset has them and, if that cuts stories, with whole ones; padding; products."""
    task, whole = Babi(config), Babi(dataclasses.replace(config, sentences=MAX_SENTENCES))
    chunk, uncut = (one.batches("train", range(options.updates)) for one in (task, whole))
    few = min(options.padded, config.batch_size)
    buckets = {length: chunk.inputs[f"words.{length}"].shape[1] for length in bucket_lengths(chunk.inputs)}
    wanted = products(task.model(), buckets, config.max_steps, config.optimiser)
    every, threads = config.batch_size * options.updates, options.threads
    cut = config.sentences < MAX_SENTENCES
    return {
        BASE: Work(partial(update_run, backend, task, chunk, threads), every),
        **({UNCUT: Work(partial(update_run, backend, whole, uncut, threads), every)} if cut else {}),
        PADDED: Work(partial(update_run, backend, whole, padded(whole, uncut, few), threads), few),
        BARE: Work(partial(PRODUCTS[backend], wanted, options.updates), every),
    }


def summary(backend: str, each: dict[str, list[float]]) -> str:
    """What the times of an example come to, in one sentence."""

    def over(name: str, base: str) -> float:
        return statistics.median(t / b for t, b in zip(each[name], each[base], strict=True))

    text = f"{backend}: {over(PADDED, BASE):.1f} times the examples per second of padding to {MAX_SENTENCES} sentences"
    if UNCUT in each:
        text += f" ({over(PADDED, UNCUT):.1f} times with whole stories)"
    return f"{text}; {100 * over(BARE, BASE):.0f} % of an update is bare products"


def babi(options: argparse.Namespace) -> int:
    """For each backend the time of an example, relative to batches by length."""
    if options.preset not in Babi.PRESETS:
        raise Refused(f"--preset must be one of {', '.join(Babi.PRESETS)}, got {options.preset!r}")
    config = make(BabiConfig, Babi.PRESETS[options.preset], {"questions": options.questions, "renew": None})
    print(f"updates of the bAbI model, preset {options.preset}: batch {config.batch_size}, N = {config.max_steps},")
    print(f"stories of at most {config.sentences} sentences, {options.threads} thread(s)")
    print(
        f"{options.repetitions} interleaved repetitions of {options.updates} updates; "
        f"padded batches have {min(options.padded, config.batch_size)} examples\n",
        flush=True,
    )
    found = False
    for backend in options.frameworks:
        works = contenders(backend, config, options)
        runs = made({name: work.make for name, work in works.items()})
        if not runs:
            continue
        found = True
        seconds = interleaved(runs, options.repetitions)
        each = {name: [t / works[name].examples for t in times] for name, times in seconds.items()}
        print(f"{backend}: time of an example over that in batches by length\n\n{ratios(each, BASE)}\n")
        print(f"{summary(backend, each)}\n", flush=True)
    if not found:
        raise Skipped("neither torch nor jax is installed: pip install -e '.[torch,jax]' installs them")
    return 0
