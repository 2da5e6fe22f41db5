"""Leaving early when serving: what it saves, against fixed N and against the usual exit of a whole batch.

Halting is geometric with a given mean, cut at N: the logits are fixed, so that the steps are known beforehand. All is
timed in turn in one process, on the same threads. overhead = wall / (wall of fixed N × Σ steps / (M·N)).
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import ponder_ref
from benchmarks.shared import Skipped, figure, import_or_skip, limit_threads, shown
from ponder_ref.runtime.checkpoint import write_whole
from ponder_ref.runtime.errors import Refused
from tasks.plots import COLOURS, pyplot, save
from tasks.runs import make_folder

SEED = 1
TINY = 10  # the tiny network is run so many times as often
PEERS = 512  # examples that the others are given: their ratios do not depend on the number
OVERHEAD, FASTER = 1.2, 3.0  # targets: overhead of the transformer, and gain on the whole-batch exit at mean 4
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}
Contender = Callable[[float, int], tuple[int, np.ndarray]]


def logit_of_mean(mean: float, steps: int) -> float:
    """The constant logit whose geometric law, cut at N, has the mean: Σ_{n<N} (1 − λ)ⁿ."""
    low, high, z = -20.0, 20.0, 0.0
    for _ in range(80):
        z = (low + high) / 2
        lam = 1 / (1 + np.exp(-z))
        low, high = (z, high) if ((1 - lam) ** np.arange(steps)).sum() > mean else (low, z)
    return float(z)


def data_of(network: str, options: argparse.Namespace) -> np.ndarray:
    """Inputs `[M, units]` (projected already) or `[M, tokens, d]`."""
    shape = (options.units,) if network == "rnn" else (options.tokens, options.width)
    return np.random.default_rng(0).normal(size=(options.examples, *shape)).astype(np.float32)


def contenders(framework: str, network: str, options: argparse.Namespace) -> dict[str, Contender]:
    """The runs of a network on a framework; for the tiny one also those that take all examples at once."""
    install = f"pip install -e '.[{framework}]'"
    import_or_skip(framework, install)
    data, slots = data_of(network, options), options.slots
    width = options.units if network == "rnn" else options.width
    module: Any = import_or_skip(f"benchmarks.serving_{framework}", install)
    runs = module.Runs(network, data, width, slots, SEED, options.steps)
    # What a step of the tiny network costs is mostly the call: its best fixed N takes all examples at once.
    batch = len(data) if network == "rnn" else slots
    found: dict[str, Contender] = {
        "fixed N": lambda z, n: runs.fixed(z, n, batch),
        "whole-batch exit": lambda z, n: runs.whole_batch(z, n),
        f"predict, {slots} slots": lambda z, n: runs.predict(z, n, slots),
        "predict": lambda z, n: runs.predict(z, n, None),
    }
    if network == "rnn":
        found["whole-batch exit, all at once"] = lambda z, n: runs.whole_batch(z, n, batch)
    return found


def timed(run: Callable[[float, int], Any], logit: float, options: argparse.Namespace) -> tuple[float, Any]:
    """Seconds of one run, and what it gives."""
    start = CLOCKS[options.clock]()
    found = run(logit, options.steps)
    return CLOCKS[options.clock]() - start, found


def laws(options: argparse.Namespace) -> dict[float, tuple[float, np.ndarray]]:
    """For each mean the logit, and the steps `[M]` that it and the seed give."""
    found = {}
    for mean in options.means:
        logit = logit_of_mean(mean, options.steps)
        lam = np.full((options.steps, options.examples), 1 / (1 + np.exp(-logit)))
        found[mean] = logit, ponder_ref.draw_steps(lam, SEED, np.arange(options.examples))
    return found


def measure(framework: str, network: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    """One record a contender and mean; in turn, repetition by repetition. Fixed N is timed once in each."""
    runs, expected = contenders(framework, network, options), laws(options)
    found: dict[tuple[float, str], list[tuple[float, Any]]] = {}
    for run in runs.values():  # warm-up
        run(0.0, 1)
    repetitions = options.repetitions * (TINY if network == "rnn" else 1)
    for repetition in range(repetitions):
        fixed = timed(runs["fixed N"], 0.0, options)
        for mean, (logit, steps) in expected.items():
            if network != "rnn":  # it takes minutes
                where = f"repetition {repetition + 1} of {repetitions}, mean of {mean:g} steps ..."
                print(f"{framework}, {network}, {where}", file=sys.stderr, flush=True)
            for name, run in runs.items():
                result = fixed if name == "fixed N" else timed(run, logit, options)
                if name != "fixed N" and not np.array_equal(result[1][1], steps):
                    raise RuntimeError(f"{framework}, {network}, {name}: other steps than the logits and seed give")
                found.setdefault((mean, name), []).append(result)
    records = []
    for (mean, name), results in found.items():
        seconds, base, usual = (
            [result[0] for result in found[mean, which]] for which in (name, "fixed N", "whole-batch exit")
        )
        needed = int(expected[mean][1].sum())
        share = needed / (options.examples * options.steps)
        relative = statistics.median(s / b for s, b in zip(seconds, base, strict=True))
        gain = statistics.median(u / s for s, u in zip(seconds, usual, strict=True))
        record = {"framework": framework, "network": network, "mean": mean, "contender": name}
        record |= {"seconds": statistics.median(seconds), "rows": int(results[0][1][0]), "needed": needed}
        figures = {"share": share, "time": relative, "overhead": relative / share, "faster": gain}
        records.append(record | {name: figure(value) for name, value in figures.items()})
    return records


def peers(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Time and rows of other implementations' own inference, over those of N steps by themselves."""
    records = []
    makers = {"labml-nn, GRU": ("labml", "rnn"), "ponder-transformer": ("ponder_transformer", "transformer")}
    for name, (maker, network) in makers.items():
        if "torch" not in options.frameworks or network not in options.networks:
            continue
        try:
            module: Any = import_or_skip("benchmarks.serving_torch", "pip install -e '.[torch]'")
            width = options.units if network == "rnn" else options.width
            data = data_of(network, options)[:PEERS]
            run = getattr(module, maker)(data, width, options.slots)
        except Skipped as reason:
            print(f"{name} is left out: {reason}.")
            continue
        print(f"{name} ...", file=sys.stderr, flush=True)
        run(0.0, 1)
        all_time, all_rows = timed(run, -40.0, options)  # it never halts
        for mean in options.means:
            time_taken, rows = timed(run, logit_of_mean(mean, options.steps), options)
            figures = {"time": time_taken / all_time, "rows": rows / all_rows}
            records.append({"contender": name, "mean": mean} | {n: figure(value) for n, value in figures.items()})
    return records


def table(records: list[dict[str, Any]], others: list[dict[str, Any]]) -> str:
    lines = [f"{'':<31} {'mean':>5} {'time':>9} {'needed':>7} {'rows':>9} {'overhead':>9} {'× whole batch':>14}"]
    group = ""
    for r in records:
        if group != (group := f"{r['framework']}, {r['network']}"):
            lines.append(f"\n{group}")
        lines.append(
            f"  {r['contender']:<29} {r['mean']:>5g} {shown(r['time']):>9} {shown(r['share']):>7}"
            f" {r['rows']:>9} {shown(r['overhead']):>9} {shown(r['faster']):>14}"
        )
    lines += ["\nothers' own inference, over N steps of their own: time and rows\n"] if others else []
    lines += [f"  {r['contender']:<29} {r['mean']:>5g} {shown(r['time']):>9} rows {shown(r['rows'])}" for r in others]
    return "\n".join(lines)


def targets(records: list[dict[str, Any]], slots: int) -> list[str]:
    """One sentence a framework on what was aimed at, for the transformer."""
    lines = []
    for framework in dict.fromkeys(r["framework"] for r in records):
        own = [r for r in records if r["framework"] == framework and r["network"] == "transformer"]
        own = [r for r in own if r["contender"] == f"predict, {slots} slots"]
        if own:
            worst, quick = max(r["overhead"] for r in own), min(own, key=lambda r: r["mean"])
            lines.append(
                f"{framework}: transformer, {slots} slots: overhead at most {worst:.2f} (target {OVERHEAD}),"
                f" {quick['faster']:.2f} times as fast as the whole-batch exit at mean {quick['mean']:g}"
                f" (target {FASTER:g} at mean 4)"
            )
    return lines


def draw(records: list[dict[str, Any]], path: Path) -> None:
    """Time over that of fixed N, by mean; the line is the share of steps that are needed."""
    plt = pyplot()
    panels = list(dict.fromkeys((r["framework"], r["network"]) for r in records))
    figure, axes = plt.subplots(1, len(panels), figsize=(3.6 * len(panels), 3.4), sharey=True, squeeze=False)
    for axis, (framework, network) in zip(axes[0], panels, strict=True):
        own = [r for r in records if (r["framework"], r["network"]) == (framework, network)]
        names = [name for name in dict.fromkeys(r["contender"] for r in own) if name != "fixed N"]
        for k, name in enumerate(names):
            rows = [r for r in own if r["contender"] == name]
            at = np.arange(len(rows)) + (k - (len(names) - 1) / 2) * 0.8 / len(names)
            axis.bar(at, [r["time"] for r in rows], 0.75 / len(names), label=name, color=COLOURS[k])
        base = [r for r in own if r["contender"] == "fixed N"]
        for k, r in enumerate(base):
            axis.hlines(r["share"], k - 0.45, k + 0.45, color="black", lw=1.5, label="steps needed" if k == 0 else None)
        axis.axhline(1, color="0.5", lw=0.8, ls="--")
        axis.set_xticks(range(len(base)), [f"{r['mean']:g}" for r in base])
        axis.set(title=f"{framework}, {network}", xlabel="mean steps", ylim=(0, 2))
    axes[0, 0].set_ylabel("time / time of fixed N")
    shown = {}  # not every panel has every contender
    for axis in axes[0]:
        shown |= {label: handle for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)}
    axes[0, -1].legend(shown.values(), shown.keys(), fontsize=7, loc="upper left")
    save(figure, path)


def inference(options: argparse.Namespace) -> int:
    """Prints the table; writes it as JSON and as a picture."""
    limit_threads(options.threads)
    if (most := max(options.means)) > options.steps:
        raise Refused(f"--means must be at most --steps, {options.steps}, got {most:g}")
    if options.examples % options.slots:
        raise Refused(f"--examples must be a multiple of --slots, got {options.examples} and {options.slots}")
    make_folder(options.out)
    records: list[dict[str, Any]] = []
    for framework in options.frameworks:
        for network in options.networks:
            try:
                records += measure(framework, network, options)
            except Skipped as reason:
                print(f"{framework}, {network}: left out, {reason}.")
    if not records:
        raise Skipped("nothing could be measured: pip install -e '.[torch,jax,tasks]' installs what is needed")
    others = peers(options)
    setting = {name: value for name, value in vars(options).items() if name not in ("run", "command", "out")}
    print(
        f"M = {options.examples} examples, N = {options.steps}, {options.slots} slots, {options.threads} thread(s),"
        f" {options.clock} time; rnn: {options.units} units; transformer: d = {options.width},"
        f" {options.tokens} tokens\ntime over that of fixed N; needed: Σ steps / (M·N); overhead: time / needed;"
        " × whole batch: how many times as fast as the whole-batch exit\n"
    )
    print(table(records, others))
    print()
    for line in targets(records, options.slots):
        print(line)
    content = {"options": setting, "records": records, "peers": others}
    write_whole(options.out / "inference.json", json.dumps(content, indent=1, default=str).encode())
    draw(records, options.out / "inference.png")
    print(f"wrote {options.out / 'inference.json'} and {options.out / 'inference.png'}")
    return 0
