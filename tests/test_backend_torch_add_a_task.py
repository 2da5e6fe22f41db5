"""docs/add-a-task.md, followed literally in a copy of `tasks`: the task that it describes trains."""

import shutil
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("safetensors")
pytest.importorskip("matplotlib")

from readme import python_blocks, read
from task_helpers import ROOT, parity, records

PAGE = "docs/add-a-task.md"


def follow(folder: Path) -> None:
    """Does what the page says, and no more."""
    others = shutil.ignore_patterns("babi", "pai", "sudoku", "export", "results", "__pycache__")
    shutil.copytree(ROOT / "tasks", folder / "tasks", ignore=others)
    task = folder / "tasks" / "count"
    task.mkdir()
    for name, block in zip(("task.py", "model_torch.py"), python_blocks(PAGE), strict=True):
        assert f"`tasks/count/{name}`" in (ROOT / PAGE).read_text(encoding="utf-8")
        (task / name).write_text(block.text, encoding="utf-8")
    (task / "__init__.py").write_text('"""How many entries are 1?"""\n', encoding="utf-8")
    main = (folder / "tasks" / "parity" / "__main__.py").read_text(encoding="utf-8")
    (task / "__main__.py").write_text(main.replace("parity", "count").replace("Parity", "Count"), encoding="utf-8")
    line = next(block.text for block in read(PAGE)[0] if block.language == "text")
    registry = folder / "tasks" / "registry.py"
    registry.write_text(registry.read_text(encoding="utf-8").replace("TASKS = {\n", "TASKS = {\n" + line))


def test_following_the_page_adds_a_task(tmp_path: Path):
    follow(tmp_path)
    commands = [block.text.splitlines() for block in read(PAGE)[0] if block.language == "text"][1]
    for line in commands:
        program, module, name, *arguments = line.split()
        assert (program, module) == ("python", "-m")
        done = parity(*arguments, cwd=tmp_path, module=name)
        assert done.returncode == 0, done.stderr
    run = tmp_path / "runs" / "count"
    kept = records(run)
    assert kept[-1]["split"] == "test" and kept[-1]["accuracy"] > 0.5 > kept[0]["accuracy"]
    assert "ones" in done.stdout and "quantile" in done.stdout
    assert (run / "figures" / "difficulty.png").exists()
    drawn = parity("runs", "--out", "drawn", cwd=tmp_path, module="tasks.figures")
    assert drawn.returncode == 0, drawn.stderr
