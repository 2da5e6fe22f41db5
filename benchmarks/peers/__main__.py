"""python -m benchmarks.peers: judges other public implementations and writes the verdicts as a Markdown page.

Exit code 0: the page is written, whatever the verdicts. 2: a peer, or the judge, is not installed.
"""

import os
import platform
import sys
import textwrap
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any

from ponder_ref.runtime.errors import Refused, one_sentence, say
from ponder_ref.runtime.files import write_whole
from tasks.flags import Parser

PEERS = ("labml", "ponder_transformer")
INSTALL = "pip install einops && pip install --no-deps labml-nn==0.5.1 ponder-transformer==0.0.8"
COMMAND = "python -m benchmarks.peers --out docs/peers.md"

HEAD = """# Other implementations

This page is written by `{command}`; do not edit it.

It shows what the judge says of public implementations of PonderNet, at level `core`, against the standard
{standard}. They do not claim to follow it: *failed* means that their numbers are not those of the standard, not
that they do not train. *Not offered* is no fault. A requirement is not tried further once it has failed: the
input shown is the first that failed, shrunk where it was drawn at random.

Each peer is called through an adapter in `benchmarks/peers/` that rearranges axes and repairs nothing; its
docstring names the function of the peer behind each function of the interface. Names, signatures and batch
shapes are the adapter's, so B1 to B3 say nothing of the peer. No peer has `remainder="normalize"`, `lengths` or
example weights: H3, H4 and L3 are not offered, and other requirements are judged without them.
"""


def adapters() -> list[ModuleType]:
    """The adapters, imported."""
    return [import_module(f"benchmarks.peers.{name}") for name in PEERS]


def comparison(judged: list[tuple[ModuleType, dict[str, Any]]]) -> str:
    """One row a requirement, one column a peer."""
    from ponder_ref.conformance.spec_data import requirements

    names = [peer.NAME for peer, _ in judged]
    lines = [f"| requirement | what it fixes | {' | '.join(names)} |", "|---" * (2 + len(names)) + "|"]
    for requirement in judged[0][1]:
        cells = [verdicts[requirement].status for _, verdicts in judged]
        shown = " | ".join(f"**{c}**" if c == "failed" else c for c in cells)
        lines.append(f"| {requirement} | {requirements()[requirement]} | {shown} |")
    return "\n".join(lines)


def failures(peer: ModuleType, verdicts: dict[str, Any]) -> str:
    """What a peer fails: the cause, and the judge's sentence with an input that fails."""
    from ponder_ref.conformance.report import counts
    from ponder_ref.conformance.spec_data import requirements

    total = counts(verdicts)
    parts = [
        f"## {peer.NAME} {version(peer.DISTRIBUTION)}",
        ", ".join(f"{n} {status}" for status, n in total.items()) + ".",
    ]
    for requirement, verdict in verdicts.items():
        if verdict.status == "failed":
            cause = peer.CAUSES.get(requirement, "The cause has not been examined.")
            sentences = "\n".join(textwrap.fill(sentence, 110) for sentence in verdict.failures)
            parts += [f"**{requirement}, {requirements()[requirement]}.** {cause}", f"```text\n{sentences}\n```"]
    seen = peer.observations()
    if seen:
        parts += ["Beside the table:", "\n".join(f"- {sentence}" for sentence in seen)]
    return "\n\n".join(parts)


def page(judged: list[tuple[ModuleType, dict[str, Any]]]) -> str:
    """The whole page."""
    from ponder_ref.base import SPEC_VERSION

    versions = [f"Python {platform.python_version()}"]
    versions += [
        f"{name} {version(name)}"
        for name in ("torch", "numpy", "hypothesis", *(peer.DISTRIBUTION for peer, _ in judged))
    ]
    parts = [HEAD.format(command=COMMAND, standard=SPEC_VERSION).rstrip(), comparison(judged)]
    parts += [failures(peer, verdicts) for peer, verdicts in judged]
    parts += ["## Versions and command", f"Judged with {', '.join(versions)}.", f"```shell\n{INSTALL}\n{COMMAND}\n```"]
    return "\n\n".join(parts) + "\n"


def judge() -> Callable[..., dict[str, Any]]:
    """The judge, imported."""
    from ponder_ref.conformance.run import judge as found

    return found


@one_sentence
def main(arguments: Sequence[str] | None = None) -> int:
    parser = Parser(prog="python -m benchmarks.peers", description="Judges other public implementations of PonderNet.")
    parser.add_argument("--out", required=True, metavar="FILE.md", help="the page to write")
    out = Path(parser.parse(arguments).out)
    if not out.resolve().parent.is_dir():
        raise Refused(f"--out: the folder {out.parent} does not exist")
    if not os.access(out.resolve().parent, os.W_OK):  # judging takes minutes
        raise Refused(f"--out: the folder {out.parent} cannot be written to")
    try:
        judged_by, peers = judge(), adapters()
    except ModuleNotFoundError as error:
        raise Refused(
            f"the trial of the peers needs {error.name!r}, which is not installed: "
            f"pip install -e '.[torch,judge]' && {INSTALL}, in a clone"
        ) from None
    judged = []
    for peer in peers:
        say(f"judging {peer.NAME} {version(peer.DISTRIBUTION)} ...")
        judged.append((peer, judged_by(peer, label=peer.NAME, level="core", shrink=True)))
    write_whole(out, page(judged).encode())
    print(f"wrote {out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
