"""One screen that says what a training or an evaluation came to."""

from pathlib import Path
from typing import Any

from tasks.metrics import bands, price


def table(record: dict[str, Any], difficulty: str) -> list[str]:
    """Accuracy and steps of a band of difficulties, a row each."""
    rows = [f"  {difficulty:>12} {'examples':>9} {'accuracy':>9} {'steps':>7}"]
    rows += [
        f"  {label:>12} {n:>9} {accuracy:>9.3f} {steps:>7.2f}" for label, n, accuracy, steps in bands(record["levels"])
    ]
    return rows


def of_record(record: dict[str, Any], task: Any) -> list[str]:
    """An evaluation: exact and sampled accuracy and steps, then the bands."""
    error = (max(record["accuracy"] * (1 - record["accuracy"]), 0.0) / record["examples"]) ** 0.5
    lines = [f"{record['split']}: {task.describe(record['split'])}, {record['examples']} examples"]
    if record["draws"]:
        lines += [
            f"  accuracy {record['accuracy']:.4f} expected (standard error {error:.4f}), "
            f"{record['sampled_accuracy']:.4f} sampled",
            f"  steps    {record['expected_steps']:.3f} expected, {record['sampled_steps']:.3f} sampled",
        ]
    else:
        lines += [
            f"  accuracy {record['accuracy']:.4f} (standard error {error:.4f})",
            f"  steps    {record['expected_steps']:.3f}",
        ]
    weight = price(task.config.method_settings())
    lines.append(f"  loss     {record['loss']:.4f} = {record['loss_rec']:.4f} + {weight:g} · {record['loss_reg']:.4f}")
    return lines + task.report(record)


def of_run(run: Any, task: Any, records: list[dict[str, Any]], figures: list[Path], note: str) -> str:
    """The end of a training."""
    c = task.config
    lines = ["", f"{task.NAME}: {c.method}, {c.optimiser}, {c.updates} updates, seed {c.seed}, backend {run.backend}"]
    for record in records:
        lines += of_record(record, task)
    lines.append(f"run      {run.folder}")
    lines.append(f"figures  {run.figures}" if figures else f"figures  none: {note}")
    lines.append(f"evaluate {run.evaluate_command()} --examples 10000")
    lines.append(f"compare  python -m tasks.figures {run.folder} OTHER_RUN... --out FOLDER")
    return "\n".join(lines)
