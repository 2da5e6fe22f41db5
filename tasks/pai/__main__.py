"""python -m tasks.pai: train, resume, evaluate."""

import sys
from collections.abc import Sequence

from tasks.command import main as run
from tasks.pai.task import Pai


def main(arguments: Sequence[str] | None = None) -> int:
    return run(Pai, arguments)


if __name__ == "__main__":
    sys.exit(main())
