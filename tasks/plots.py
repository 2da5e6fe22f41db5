"""How figures look, and the figures of a single run: learning curves, accuracy by group, halting and prior.

matplotlib is imported when something is drawn.
"""

import io
from pathlib import Path
from typing import Any

import numpy as np

from ponder_ref.priors import named_log_prior
from ponder_ref.runtime.errors import Refused
from ponder_ref.runtime.files import make_folder, write_whole
from tasks.runs import Run, read_records
from tasks.views import Views

# Colours that people with colour-blindness can tell apart (Okabe and Ito); the paper's blue and orange come first.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#000000", "#F0E442")
STYLE: dict[Any, Any] = {
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "legend.frameon": False,
    "font.size": 9,
    "savefig.dpi": 150,
    "figure.constrained_layout.use": True,
}


def pyplot() -> Any:
    """matplotlib.pyplot, drawing into files only."""
    try:
        import matplotlib
    except ModuleNotFoundError:
        raise Refused(
            "figures need 'matplotlib', which is not installed: "
            "pip install -e '.[tasks]' in a clone of pondernet installs it"
        ) from None
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    plt.rcParams.update(STYLE)
    return plt


def save(figure: Any, path: Path) -> Path:
    """Writes the picture and closes the figure."""
    drawn = io.BytesIO()
    try:
        figure.savefig(drawn, format=path.suffix.removeprefix("."), metadata={"Software": None})
    finally:
        pyplot().close(figure)
    make_folder(path.parent)
    write_whole(path, drawn.getvalue())
    return path


def column(records: list[dict[str, Any]], name: str) -> np.ndarray:
    """The numbers under a name, NaN where a record has none."""
    return np.array([record.get(name) for record in records], np.float64)


def chance_line(axes: Any, guess: float | None) -> None:
    """The accuracy of guessing, where it is the same for all examples."""
    if guess is not None:
        axes.axhline(guess, color="grey", linewidth=0.8, linestyle=":")


def draw_curves(records: list[dict[str, Any]], method: str, guess: float | None, path: Path) -> Path:
    """Loss parts, accuracy and steps over the updates, in training and on each evaluated split."""
    train = [record for record in records if record["kind"] == "train"]
    splits = sorted(
        {record["split"] for record in records if record["kind"] == "eval" and "test" not in record["split"]}
    )
    figure, (loss, reg, accuracy, steps) = pyplot().subplots(4, 1, figsize=(6, 8), sharex=True)
    sources = [("train", train, {"alpha": 0.45, "linewidth": 1.0})]
    for split in splits:
        chosen = [record for record in records if record.get("split") == split]
        sources.append((split, chosen, {"linewidth": 1.6}))
    for (label, rows, look), colour in zip(sources, ("grey", *COLOURS), strict=False):
        x = column(rows, "update")
        for axes, name in ((loss, "loss_rec"), (reg, "loss_reg"), (accuracy, "accuracy"), (steps, "expected_steps")):
            axes.plot(x, column(rows, name), color=colour, label=label, **look)
    loss.set(ylabel="loss of the answer")
    reg.set(ylabel={"ponder": "KL to the prior", "act": "ponder cost N + R"}.get(method, "no further loss"))
    accuracy.set(ylabel="expected accuracy")
    chance_line(accuracy, guess)
    steps.set(ylabel="expected steps", xlabel="updates")
    loss.legend(ncols=3)
    return save(figure, path)


def tests_of(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [record for record in records if str(record.get("split", "")).startswith("test")]


def final(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What a run came to: its tests, or its last evaluation where it has none."""
    return tests_of(records) or [record for record in records if "split" in record][-1:]


def name_groups(accuracy: Any, steps: Any, group: str, guess: float | None) -> None:
    """The axes of a figure with accuracy above and steps below, by group."""
    chance_line(accuracy, guess)
    accuracy.set(ylabel="expected accuracy", ylim=(0, 1.03))
    steps.set(ylabel="expected steps", ylim=(0, None), xlabel=f"number of {group}")
    steps.xaxis.get_major_locator().set_params(integer=True)


def draw_levels(records: list[dict[str, Any]], group: str, guess: float | None, path: Path) -> Path:
    """Accuracy (top) and steps (bottom) by group at the end of training, one line for each split."""
    figure, (accuracy, steps) = pyplot().subplots(2, 1, figsize=(6, 4.5), sharex=True)
    for one, colour in zip(final(records), COLOURS, strict=False):
        levels = np.array(one["levels"])
        marker = "o" if len(levels) < 40 else None
        accuracy.plot(levels[:, 0], levels[:, 2], color=colour, marker=marker, markersize=3, label=one["split"])
        steps.plot(levels[:, 0], levels[:, 3], color=colour, marker=marker, markersize=3)
    name_groups(accuracy, steps, group, guess)
    accuracy.legend(loc="lower left")
    return save(figure, path)


def draw_halting(record: dict[str, Any], config: Any, guess: float | None, path: Path) -> Path:
    """Mean chance of answering with each step, beside the prior, and the accuracy of each step's own answer."""
    share, right = np.array(record["step_share"]), np.array(record["step_accuracy"])
    n = np.arange(1, len(share) + 1)
    figure, (halting, accuracy) = pyplot().subplots(2, 1, figsize=(6, 4.5), sharex=True)
    halting.bar(n, share, color=COLOURS[0], label=f"{config.method}, mean over the examples")
    if config.method == "ponder":
        prior = np.exp(named_log_prior(config.prior, config.lambda_p, len(share), dtype="float64"))
        label = f"prior, λ_p = {config.lambda_p}" if config.prior == "geometric" else f"{config.prior} prior"
        halting.plot(n, prior, color=COLOURS[1], marker="o", markersize=3, label=label)
    halting.set(ylabel="chance of halting")
    halting.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=2)  # above: no bar is behind it
    accuracy.plot(n, right, color=COLOURS[0], marker="o", markersize=3)
    chance_line(accuracy, guess)
    accuracy.set(ylabel="accuracy of the step", ylim=(0, 1.03), xlabel="step")
    accuracy.xaxis.get_major_locator().set_params(integer=True)
    return save(figure, path)


def draw_run(run: Run, task: Views) -> tuple[list[Path], str]:
    """The figures of a finished run, and why there are none if so: a training is not lost for want of a picture."""
    try:
        records, out = read_records(run.metrics), run.figures
        drawn = [
            draw_curves(records, run.config.method, task.GUESS, out / "learning.png"),
            draw_halting(final(records)[0], run.config, task.GUESS, out / "halting.png"),
        ]
        if task.ORDERED:
            drawn.append(draw_levels(records, task.GROUP, task.GUESS, out / "difficulty.png"))
        return [*drawn, *task.draw(run.config, records, out)], ""
    except Refused as error:
        return [], str(error)
    except Exception as error:  # whatever it is: the numbers are safe, and figures can be drawn again from them
        return [], f"{type(error).__name__}: {error}".splitlines()[0]
