"""Evaluation: the metrics of a split, in a training and of a run's checkpoint (`--evaluate RUN`)."""

import argparse
import dataclasses
from collections.abc import Callable
from operator import itemgetter
from typing import Any

from ponder_ref.exits import POLICIES
from ponder_ref.runtime.checkpoint import parameters
from ponder_ref.runtime.contracts import Trainer
from ponder_ref.runtime.errors import Refused
from ponder_ref.runtime.values import Choice, Integer, Number
from ponder_ref.trees import map_tree
from tasks import summary
from tasks.batches import prefetch
from tasks.contracts import Task
from tasks.flags import flag, flag_value, given, refuse, show
from tasks.metrics import Exits, Tally
from tasks.own_network import check_same, own_code
from tasks.runs import EVALUATIONS, PRETRAINED, Run, is_shipped, open_trained
from tasks.trainers import THREADS, make_state, make_trainer

EXAMPLES, DRAWS = Integer(1, 10**7), Integer(1, 4096)
SPLIT, POLICY, Q = Choice(("test", "valid")), Choice(POLICIES), Number("(0, 1]")
FLAGS = ("examples", "draws", "split", "policy", "q", "record")  # that go with --evaluate alone


def evaluate(
    trainer: Trainer,
    state: Any,
    task: Task,
    split: str,
    *,
    examples: int,
    draws: int = 1,
    exits: Exits | None = None,
    before_batch: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """The metrics of the first `examples` examples of a split (spec annex/tasks.md, "Metrics").

    Expectations are over all steps. Where there are `exits`, answers are also given as they would be in use, under
    that policy. `before_batch` may raise, to end it early.
    """
    config, network = task.config, task.network()
    tally = Tally(network.halting, network.model.output, config.seed, draws, shares=task.SHARES)
    with prefetch(task.evaluation(split, examples)) as ahead:
        for batch in ahead:
            before_batch()
            inputs = task.plain(batch.inputs) if network.is_own else batch.inputs
            # The whole batch is run, whatever is counted of it: few shapes for the backend to compile.
            y_hat, halt_logits = trainer.unroll(state, inputs, max_steps=config.own_steps)
            n = batch.counted
            targets, ids = batch.targets[:n], batch.ids[:n]
            tally.add(y_hat[:, :n], halt_logits[:, :n], targets, ids, batch.groups[:n])
            if exits is not None:
                rows, how = map_tree(itemgetter(slice(n)), inputs), {**exits.policy, "max_steps": config.own_steps}
                exits.add(trainer.predict(state, rows, seed=config.seed, example_ids=ids, **how), targets)
    return {**tally.result(), **({} if exits is None else {"policy": exits.result()})}


def add_run_flags(p: argparse.ArgumentParser, task: type[Task]) -> None:
    """--evaluate, and what goes with it."""
    evaluated = p.add_argument_group("evaluation of a run")
    evaluated.add_argument(
        "--evaluate",
        metavar="RUN",
        help="evaluate a run's newest checkpoint"
        + (f", or the shipped one ({PRETRAINED})" if task.PRETRAINED else "")
        + "; of the flags below it takes "
        + " and ".join(flag(name) for name in task.EVALUATION_FLAGS)
        + " (--max-steps also beyond training's)",
    )
    evaluated.add_argument("--split", metavar="NAME", help=f"examples to evaluate on ({SPLIT}; default test)")
    evaluated.add_argument(
        "--examples", metavar="N", help=f"how many examples ({EXAMPLES}; default the run's --test-examples)"
    )
    evaluated.add_argument("--draws", metavar="N", help=f"sampled steps per example ({DRAWS}; default 1)")
    evaluated.add_argument(
        "--policy",
        metavar="NAME",
        help=f"also answer as in use, where rows leave early ({POLICY}): accuracy, mean steps and rows computed",
    )
    evaluated.add_argument("--q", metavar="Q", help=f"with --policy quantile: the mass ({Q}; default 0.5)")
    evaluated.add_argument("--record", action="store_true", help=f"add the result to the run's {EVALUATIONS}")


def evaluate_run(task: type[Task], options: argparse.Namespace) -> int:
    """Evaluates a checkpoint on test examples, with another N or another range if wished."""
    fixed = [field.name for field in dataclasses.fields(task.Config) if field.name not in task.EVALUATION_FLAGS]
    refuse(options, ("stop_at",), "is for a training")
    refuse(options, ["out", "resume", "preset", *fixed], "does not go with --evaluate: the run's own value counts")
    explicit = given(options, task.Config)
    examples = flag_value(options, "examples", EXAMPLES, 0) if hasattr(options, "examples") else None
    stage = flag_value(options, "split", SPLIT, "test")
    draws = flag_value(options, "draws", DRAWS, 1)
    threads = flag_value(options, "threads", THREADS, 1)
    run, found = open_trained(task, options.evaluate, getattr(options, "checkpoint", None))
    if is_shipped(run.folder):
        refuse(options, ("record",), "goes with a run of one's own")
    policy = policy_of(options, run)
    backend = options.backend if hasattr(options, "backend") else run.own_backend()
    # The model is that of the training, its data need not be at hand.
    trained = task(dataclasses.replace(run.config, **{k: v for k, v in explicit.items() if k != "max_steps"}))
    code = own_code(task, options, backend)
    trained.own = check_same(code, run.own, run.folder)
    trainer, file = make_trainer(backend, trained, threads, code), getattr(options, "checkpoint", run.folder)
    if trained.own is None:  # the parameters are enough, and all that a shipped checkpoint has
        state = make_state(trainer.init, parameters(found.arrays), file)
    else:  # which may have more, such as running means
        state = make_state(trainer.load, found.arrays, file)
    made = trained  # its files are opened once
    if "max_steps" in explicit:  # the fewest steps are training's; evaluation has none
        explicit["min_steps"] = min(run.config.min_steps, explicit["max_steps"])
        made = task(dataclasses.replace(run.config, **explicit))
        made.own = trained.own
    settings = {"examples": examples or run.config.test_examples or run.config.eval_examples, "draws": draws}
    steps, update = made.config.own_steps, found.about["update"]
    print(f"checkpoint of update {update}, N = {steps}, {draws} draws", flush=True)
    for split in made.splits(stage):
        exits = Exits(made.network().model.output, **policy) if policy else None
        record = {"split": split, **evaluate(trainer, state, made, split, exits=exits, **settings)}
        if hasattr(options, "record"):
            # Where files lie is another place on every machine: `data` says what they are.
            flags = {k: show(v) for k, v in explicit.items() if k not in task.FILES}
            about = {"kind": "eval", "update": update, "data": made.describe(split), **flags, "max_steps": steps}
            run.append(run.evaluations, [about | record])
        print("\n".join([*summary.of_record(record, made), *policy_lines(record)]))
    return 0


def policy_of(options: argparse.Namespace, run: Run) -> dict[str, Any]:
    """The exit policy of --policy and --q, as arguments of `predict`; empty if none is wished."""
    name = flag_value(options, "policy", POLICY, "fixed")
    if name != "quantile":
        refuse(options, ("q",), "goes with --policy quantile")
    method = run.config.method
    if not hasattr(options, "policy"):
        return {}
    if method not in ("ponder", "repeat", "once") or (method != "ponder" and name != "fixed"):
        raise Refused(f"--policy {name} needs a run of --method ponder, and {run.folder} is one of {method}")
    return {"policy": name} | ({"q": flag_value(options, "q", Q, 0.5)} if name == "quantile" else {})


def policy_lines(record: dict[str, Any]) -> list[str]:
    if (found := record.get("policy")) is None:
        return []
    name = found["name"] + (f" {found['q']:g}" if "q" in found else "")
    numbers = f"accuracy {found['accuracy']:.4f}, steps {found['steps']:.3f}, {found['rows']} rows computed"
    return [f"  policy   {name}: {numbers}"]
