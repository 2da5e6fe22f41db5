"""Updates of the bAbI model: batches by length against padding everything to 320 sentences, and the bare products.

Data, model and optimiser are those of a preset of `python -m tasks.babi`. Everything is timed in turn in one process.
"""

import argparse
import dataclasses
from collections.abc import Iterator
from functools import partial

import numpy as np

from benchmarks.products import (
    PRODUCTS,
    Counted,
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
from benchmarks.shared import NO_FRAMEWORK, Skipped
from ponder_ref.base import Batch
from ponder_ref.models._buckets import bucket_lengths
from ponder_ref.models.transformer import Transformer
from tasks.babi.encode import MAX_SENTENCES
from tasks.babi.settings import BabiConfig
from tasks.babi.task import Babi

BASE, UNCUT, PADDED, BARE = "by length", "by length, whole stories", "padded to 320", "bare products"


def padded(task: Babi, chunk: Batch, count: int) -> Batch:
    """The first update of a chunk with `count` of its examples, evenly taken, all padded to 320 sentences."""
    chosen = np.linspace(0, chunk.targets.shape[1] - 1, count).round().astype(int)
    rows = []
    for length in bucket_lengths(chunk.inputs):
        words = chunk.inputs[f"words.{length}"][0]
        rows += list(np.pad(words, [(0, 0), (MAX_SENTENCES + 1 - length, 0), (0, 0)]))
    inputs = {f"words.{MAX_SENTENCES + 1}": np.stack([rows[i] for i in chosen])[None]}
    inputs = task.model().with_masks(inputs, task.config.seed, range(1), task.config.max_steps)
    return Batch(inputs, *(array[:1, chosen] for array in chunk[1:]))


def forward_products(model: Transformer, buckets: dict[int, int], steps: int) -> Iterator[Counted]:
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


def products(model: Transformer, buckets: dict[int, int], steps: int, optimiser: str) -> list[Counted]:
    """All products of an update: forward, by both factors for the gradient, and Muon's."""
    found = [*with_gradients(forward_products(model, buckets, steps))]
    return tallied([*found, *muon_products(model)] if optimiser == "muon" else found)


def contenders(backend: str, config: BabiConfig, options: argparse.Namespace) -> dict[str, Work]:
    """Batches by length as the preset has them and, if that cuts stories, with whole ones; padding; products."""
    task, whole = Babi(config), Babi(dataclasses.replace(config, sentences=MAX_SENTENCES))
    chunk, uncut = (train_chunk(one, range(options.updates)) for one in (task, whole))
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
    gain = over(each, PADDED, BASE)
    text = f"{backend}: {gain:.1f} times the examples per second of padding to {MAX_SENTENCES} sentences"
    if UNCUT in each:
        text += f" ({over(each, PADDED, UNCUT):.1f} times with whole stories)"
    return f"{text}; {100 * over(each, BARE, BASE):.0f} % of an update is bare products"


def babi(options: argparse.Namespace) -> int:
    """For each backend the time of an example, relative to batches by length."""
    config = preset_config(Babi, options.preset, questions=options.questions, renew=None)
    report = Report(
        "babi",
        options,
        f"updates of the bAbI model, preset {options.preset}: batch {config.batch_size}, N = {config.max_steps},",
        f"stories of at most {config.sentences} sentences, {options.threads} thread(s),",
        f"{options.repetitions} interleaved repetitions of {options.updates} updates; "
        f"padded batches have {min(options.padded, config.batch_size)} examples",
    )
    found = False
    for backend in options.frameworks:
        each = times(contenders(backend, config, options), options.repetitions)
        if not each:
            continue
        found = True
        report.table(f"{backend}: time of an example over that in batches by length", each, BASE)
        report.say(summary(backend, each))
    if not found:
        raise Skipped(NO_FRAMEWORK)
    report.write()
    return 0
