"""What pages, help texts and messages say of the project is so."""

import json
import re
import sys
import tomllib

import pytest
from readme import ROOT, pages, read
from readme_commands import commands, parts

from ponder_ref.base import SPEC_VERSION
from ponder_ref.conformance import __main__ as judge
from ponder_ref.conformance.spec_data import requirements
from tasks import command
from tasks.babi.task import Babi
from tasks.pai.task import Pai
from tasks.parity import Parity


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def test_the_page_of_the_peers_was_made_with_this_standard():
    """If not: python -m benchmarks.peers --out docs/peers.md, or nox -s judge_peers."""
    assert re.search(r"against the standard\s+(\S+)\. ", text_of("docs/peers.md"))[1] == SPEC_VERSION


@pytest.mark.parametrize("task", [Parity, Babi, Pai])
def test_help_offers_a_shipped_checkpoint_where_there_is_one(task):
    shipped = task.PRETRAINED is not None and (task.PRETRAINED / "model.safetensors").is_file()
    assert ("pretrained" in command.parser(task).format_help()) == shipped


def test_the_judge_names_the_extra_that_the_pages_name(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "hypothesis", None)
    assert judge.main(["--backend", "ponder_ref"]) == 2
    (install,) = re.findall(r"pip install -e '\.\[(.*)\]'", capsys.readouterr().err)
    assert install == "judge"
    with (ROOT / "pyproject.toml").open("rb") as file:
        extras = tomllib.load(file)["project"]["optional-dependencies"]
    assert any(name.startswith("hypothesis") for name in extras[install])


@pytest.mark.parametrize("page", ["README.md", "docs/index.md", "docs/judge.md"])
def test_a_page_installs_the_judge_before_it_calls_it(page: str):
    words = [part for block in blocks(page) for line in block.splitlines() for part in parts(line)]
    installs = [i for i, part in enumerate(words) if part[:1] == ["pip"] and any("judge" in word for word in part)]
    calls = [i for i, part in enumerate(words) if "ponder_ref.conformance" in part]
    assert installs and calls and installs[0] < calls[0]


def blocks(page: str) -> list[str]:
    return [block.text for block in read(page)[0] if block.language in ("sh", "shell")]


@pytest.mark.parametrize("page", pages())
def test_no_two_commands_of_a_page_make_the_same_folder(page: str):
    """A run's folder must be new or empty, so that the second would be refused."""
    made = []
    for words in (words for found in commands(page) for words in parts(found.text)):
        if words[:2] == ["python", "-m"] and "--out" in words and "--resume" not in words:
            made.append(words[words.index("--out") + 1])
    made = [name for name in made if name.startswith("runs/")]
    assert sorted(made) == sorted(set(made))


def test_the_page_of_export_says_what_can_be_exported():
    """The command refuses what is no parity run; the page must not promise more."""
    prose = " ".join(text_of("docs/export.md").split("```")[0].split())
    assert "A trained run of the parity task becomes one file" in prose
    assert "Runs of the other tasks" in prose and "cannot be exported" in prose


def test_the_caption_of_the_servers_names_their_loads():
    caption = text_of("docs/inference.md").split("figures/serving.png")[1].split("```")[0]
    assert "load of 0.8" in caption and "At 1.5" in caption
    from readme_commands import load_script

    assert load_script(ROOT / "docs" / "serving.py").LOADS == (0.8, 1.5)


def test_the_readme_counts_requirements_and_cases():
    files = (ROOT / "spec" / "vectors").glob("*.json")
    cases = sum(len(json.loads(path.read_text(encoding="utf-8"))["cases"]) for path in files)
    words = " ".join(text_of("README.md").split())
    assert f"{len(requirements())} numbered requirements" in words and f"{cases} golden cases" in words


def test_whether_steps_grow_with_the_non_zeros_differs_from_seed_to_seed():
    """As docs/tasks.md and the results say of the default preset: between half and all of the bits some seeds rise."""
    assert "differs from seed to seed" in text_of("docs/tasks.md").replace("\n", " ")
    rises = []
    for path in sorted((ROOT / "docs" / "results" / "parity-16").glob("ponder-*/metrics.jsonl")):
        records = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        steps = {level: mean for level, _, _, mean in [r for r in records if r.get("split") == "test"][-1]["levels"]}
        rises.append(steps[16] > steps[9])
    assert len(rises) == 10 and any(rises) and not all(rises)
