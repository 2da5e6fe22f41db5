"""Runs an example of the README: a helper of the tests of the backends."""

import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).resolve().parent.parent / "README.md"


def run_example(module: str) -> None:
    """The one Python block that names the module runs as it stands, without warnings, and prints positive numbers."""
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.S)
    (example,) = [block for block in blocks if module in block]
    result = subprocess.run([sys.executable, "-W", "error", "-c", example], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    numbers = [float(number) for number in result.stdout.split()]
    assert numbers and all(number > 0 for number in numbers)
