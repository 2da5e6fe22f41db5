"""Updates of the model of paired associative inference: both backends, the bare products, and making the data.

Data, model and optimiser are those of a preset of `python -m tasks.pai`. Everything is timed in turn in one process.
"""

import argparse
import dataclasses
import statistics
from collections.abc import Iterator
from functools import partial
from itertools import pairwise

from benchmarks.products import (
    PRODUCTS,
    Counted,
    Shape,
    Work,
    muon_products,
    over,
    preset_config,
    tallied,
    times,
    train_chunk,
    update_run,
    with_gradients,
)
from benchmarks.report import Report
from benchmarks.shared import NO_FRAMEWORK, Run, Skipped
from ponder_ref.models.pairs import TOKENS, PairTransformer
from tasks.pai.settings import PaiConfig
from tasks.pai.task import Pai

DATA = "making the data"


def bare(backend: str) -> str:
    return f"{backend}, bare products"


def xl(backend: str) -> str:
    return f"{backend}, --memory xl"


def data_run(task: Pai, updates: int) -> Run:
    """Makes the data of so many updates, always of the next ones."""
    held = [0]

    def run() -> float:
        held[0] += updates
        return float(train_chunk(task, range(held[0] - updates, held[0])).targets.sum())

    return run


def block_products(model: PairTransformer, batch: int, own: int, seen: int) -> Iterator[Shape]:
    """The forward products of a block: `own` tokens an example, which see `seen` others and each other."""
    d, attention, rows = model.embedding, model.attention, batch * own
    b, e = batch * model.heads, attention // model.heads
    yield 1, rows, d, 3 * attention
    for keys in (own, seen) if seen else (own,):
        yield b, own, e, keys
        yield b, own, keys, e
    yield 1, rows, attention, d
    for width_in, width_out in pairwise((d, *[model.transition] * model.layers, d)):
        yield 1, rows, width_in, width_out


def forward_products(model: PairTransformer, batch: int, pairs: int, steps: int) -> Iterator[Counted]:
    """(how often, shape) of an update's forward products behind the embeddings of the images, with memory "none".

    Application k of the decoder is for the steps n ≥ k, whose keys and values of the memory are computed once (M10).
    """
    d, attention = model.embedding, model.attention
    yield from ((steps, shape) for shape in block_products(model, batch, pairs, 0))
    yield 1, (1, steps * batch * pairs, d, 2 * attention)
    for left in range(1, steps + 1):
        yield from ((1, shape) for shape in block_products(model, left * batch, TOKENS, pairs))
    yield 1, (1, steps * batch, 2 * d, model.outputs + 1)


def products(model: PairTransformer, batch: int, images: int, pairs: int, steps: int, optimiser: str) -> list[Counted]:
    """All products of an update of `batch` memories of so many images and pairs: forward, gradients, and Muon's.

    Images have no gradient. Taking embeddings by their slots is no product of the model, though JAX has it as one.
    """
    rows, width, d = batch * images, model.width, model.embedding
    embedding = [(1, (1, rows, width, d)), (1, (1, width, rows, d))]
    found = [*embedding, *with_gradients(forward_products(model, batch, pairs, steps))]
    return tallied([*found, *muon_products(model)] if optimiser == "muon" else found)


def contenders(config: PaiConfig, options: argparse.Namespace) -> dict[str, Work]:
    """Updates and bare products of each backend, updates with memory "xl" if they are asked for, and the data."""
    task, updates, threads = Pai(config), options.updates, options.threads
    chunk = train_chunk(task, range(updates))
    images, pairs = (chunk.inputs[name].shape[2] for name in ("images", "rows"))
    wanted = products(task.model(), config.batch_size, images, pairs, config.max_steps, config.optimiser)
    works = {}
    for backend in options.frameworks:
        works[backend] = partial(update_run, backend, task, chunk, threads)
        works[bare(backend)] = partial(PRODUCTS[backend], wanted, updates)
    if options.xl:
        wide = Pai(dataclasses.replace(config, memory="xl"))
        seen = train_chunk(wide, range(updates))  # its masks of dropout are wider
        works |= {xl(backend): partial(update_run, backend, wide, seen, threads) for backend in options.frameworks}
    works[DATA] = partial(data_run, task, updates)
    return {name: Work(make, updates) for name, make in works.items()}


def summary(backend: str, each: dict[str, list[float]]) -> str:
    """What the times of an update come to, in one sentence."""
    text = (
        f"{backend}: {1 / statistics.median(each[backend]):.3g} updates per second; "
        f"{100 * over(each, bare(backend), backend):.0f} % of an update is bare products; "
        f"making its data takes {100 * over(each, DATA, backend):.1f} % of its time"
    )
    if xl(backend) in each:
        text += f"; --memory xl takes {over(each, xl(backend), backend):.2f} times as long"
    return text


def pai(options: argparse.Namespace) -> int:
    """The time of an update of each backend, relative to the first; a sentence for each of them."""
    config = preset_config(Pai, options.preset)
    report = Report(
        "pai",
        options,
        f"updates of the model of pairs, preset {options.preset}: batch {config.batch_size}, N = {config.max_steps},",
        f"width {config.embedding}, {config.optimiser}, {options.threads} thread(s),",
        f"{options.repetitions} interleaved repetitions of {options.updates} updates",
    )
    each = times(contenders(config, options), options.repetitions)
    found = [backend for backend in options.frameworks if backend in each]
    if not found:
        raise Skipped(NO_FRAMEWORK)
    report.table(f"time of an update over that of {found[0]}", each, found[0])
    for backend in found:
        report.say(summary(backend, each))
    if {"torch", "jax"} <= set(found):
        report.say(f"jax makes {over(each, 'torch', 'jax'):.2f} times the updates per second of torch")
    report.write()
    return 0
