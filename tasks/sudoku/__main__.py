"""python -m tasks.sudoku: train, resume, evaluate."""

import sys
from collections.abc import Sequence

from tasks.command import main as run
from tasks.sudoku.task import Sudoku


def main(arguments: Sequence[str] | None = None) -> int:
    return run(Sudoku, arguments)


if __name__ == "__main__":
    sys.exit(main())
