"""Sphinx configuration: `sphinx-build -W -b html docs docs/_build/html`."""

import re
import tomllib
from importlib.util import find_spec
from pathlib import Path
from posixpath import normpath

_ROOT = Path(__file__).resolve().parent.parent
_PROJECT = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

project = _PROJECT["name"]
author = _PROJECT["authors"][0]["name"]
release = version = _PROJECT["version"]
copyright = author

extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3

html_theme = "furo" if find_spec("furo") else "alabaster"
html_title = f"{project} {release}"


def _link_chapters(app, path, parent, content: list[str]) -> None:
    """The chapters of spec/ link to each other as files; on the one page that includes them all they are sections."""
    folder = "annex/" if path.parent.name == "annex" else ""

    def section(found: re.Match) -> str:
        return f"](#spec-{normpath(folder + found[1]).replace('/', '-')})"

    content[0] = re.sub(r"\]\(((?:\.\./|annex/)?\w+)\.md\)", section, content[0])


def setup(app) -> None:
    app.connect("include-read", _link_chapters)
