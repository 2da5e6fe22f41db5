"""Every command of the pages is one that its program takes."""

import pytest
from readme import pages
from readme_commands import Command, NotParsed, check, commands


@pytest.mark.parametrize("page", pages())
def test_every_command_is_parsed_by_its_program(page: str):
    for command in commands(page):
        check(command)


def test_the_commands_of_the_main_pages_are_found():
    found = {page: [command.text for command in commands(page)] for page in pages()}
    assert any("nox -s test_torch test_jax" in text for text in found["README.md"])
    assert "python -m ponder_ref.conformance --backend ponder_torch" in found["README.md"]
    assert any("'.[dev]'" in text for text in found["CONTRIBUTING.md"])
    assert any("--preset finish --start first-SEED" in text for text in found["docs/results.md"])
    assert "python -m tasks.babi --evaluate pretrained --split test" in found["tasks/babi/pretrained/card.md"]


@pytest.mark.parametrize(
    "text",
    [
        "python -m tasks.parity --bitz 4",
        "python -m tasks.parity --bits 1",
        "python -m tasks.parity --preset huge",
        "python -m tasks.nothing",
        "python -m benchmarks cooking",
        "python -m ponder_ref.conformance",
        "python docs/nothing.py",
        "python -c pass",
        "pip install -e '.[jax,cooking]'",
        "pip uninstall torch",
        "pip install --pre torch",
        "nox -s cooking",
        "nox test_torch",
        "nox -s conformance -- --colour red",
        "git push origin main",
        "make all",
        "cd pondernet && make all",
    ],
)
def test_a_command_that_would_be_refused_is_noticed(text: str):
    with pytest.raises(NotParsed):
        check(Command("a page", 1, text))
