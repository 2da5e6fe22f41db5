"""python -m tasks.parity: train, resume, evaluate."""

import sys
from collections.abc import Sequence

from tasks.command import main as run
from tasks.parity.task import Parity


def main(arguments: Sequence[str] | None = None) -> int:
    return run(Parity, arguments)


if __name__ == "__main__":
    sys.exit(main())
