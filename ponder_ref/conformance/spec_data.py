"""Finds and reads the data of `spec/`: tolerances, golden vectors and the table of requirements.

An installed package carries the folder as `ponder_ref/_spec`; in a clone it is `spec/` beside the package.
"""

import json
import re
import tomllib
from functools import cache
from pathlib import Path

import numpy as np


@cache
def spec_folder() -> Path:
    here = Path(__file__).resolve().parent.parent
    for folder in (here / "_spec", here.parent / "spec"):
        if (folder / "tolerances.toml").is_file():
            return folder
    raise FileNotFoundError("the data of the spec is missing: neither ponder_ref/_spec nor spec/ has tolerances.toml")


@cache
def tolerances() -> dict:
    """quantity -> dtype -> {rtol, atol, scale, reason}."""
    return tomllib.loads((spec_folder() / "tolerances.toml").read_text(encoding="utf-8"))


@cache
def requirements() -> dict[str, str]:
    """Requirement id -> what it fixes, from the table of spec/README.md."""
    text = (spec_folder() / "README.md").read_text(encoding="utf-8")
    return dict(re.findall(r"^\| ([A-Z]\d+) \| (.+?) \|", text, flags=re.M))


def read_array(entry: dict) -> np.ndarray:
    """An array of a vector file: flat data in C order, or one value to fill it with; inf and nan as strings."""
    data = entry["data"]
    values = [data["fill"]] * int(np.prod(entry["shape"])) if isinstance(data, dict) else data
    dtype = np.dtype(entry["dtype"])
    return np.array([float(v) if dtype.kind == "f" else v for v in values], dtype).reshape(entry["shape"])


@cache
def vectors() -> dict[str, list[dict]]:
    """Function (or gradient) name -> its golden cases, arrays read."""
    found = {}
    for path in sorted((spec_folder() / "vectors").glob("*.json")):
        content = json.loads(path.read_text(encoding="utf-8"))
        for case in content["cases"]:
            for part in ("arrays", "expected"):
                case[part] = {name: read_array(entry) for name, entry in case.get(part, {}).items()}
        found[content["function"]] = content["cases"]
    return found
