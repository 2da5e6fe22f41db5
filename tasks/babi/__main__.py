"""python -m tasks.babi: train, resume, evaluate."""

import sys
from collections.abc import Sequence

from tasks.babi.task import Babi
from tasks.command import main as run


def main(arguments: Sequence[str] | None = None) -> int:
    return run(Babi, arguments)


if __name__ == "__main__":
    sys.exit(main())
