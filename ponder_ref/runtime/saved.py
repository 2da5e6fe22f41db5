"""Networks in files: of a run's checkpoint, of a folder that `PonderNet.save` wrote, of a shipped one.

All are safetensors files with a JSON description (`ponder_ref.runtime.checkpoint`). No task is asked, and nothing in a
file names code to import.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ponder_ref import checks
from ponder_ref.base import SPEC_VERSION
from ponder_ref.models import check_parameters
from ponder_ref.runtime import checkpoint, network, translate
from ponder_ref.runtime.errors import Refused, on_one_line, reason
from ponder_ref.runtime.files import make_folder, write_whole
from ponder_ref.runtime.network import Network
from ponder_ref.runtime.train import REST

MODEL = "model.safetensors"  # of a folder that holds a network alone


class Saved(NamedTuple):
    """A network in a file: its description, its parameters by name, and its other variables by name."""

    network: Network
    params: dict[str, np.ndarray]
    rest: dict[str, np.ndarray]
    path: Path


def find_file(path: Path) -> Path:
    """The file of a network: the path itself, a saved folder's, or a run's newest checkpoint."""
    try:
        if path.is_file():
            return path
        saved, files = (path / MODEL).is_file(), checkpoint.listed(path / "checkpoints")
    except OSError as error:
        raise Refused(f"cannot read {path}: {reason(error)}") from None
    if saved and files:
        raise Refused(f"{path} holds two networks, {MODEL} and the checkpoints of a run: name the file")
    if saved:
        return path / MODEL
    if not files:
        raise Refused(f"{path} holds no network: neither {MODEL} nor a checkpoint of a run")
    return list(files.values())[-1]


def _read(file: Path) -> checkpoint.Checkpoint:
    """What a file holds; of a damaged checkpoint the sentence names the newest good one before it."""
    try:
        return checkpoint.read(file, checkpoint.FORMAT, checkpoint.PARAMETERS)
    except Refused as error:
        if (good := checkpoint.good_before(file)) is None:
            raise
        raise checkpoint.Damaged(str(error), good, "load") from None


def read_saved(path: str | Path) -> Saved:
    """The network at a path: a run's folder, a saved or shipped folder, or a file of one. ValueError if there is none,
    or it is damaged."""
    try:
        file = find_file(Path(path))
        found = _read(file)
    except Refused as error:
        raise ValueError(str(error)) from None
    params = checkpoint.parameters(found.arrays)
    rest = {name.removeprefix(REST): x for name, x in found.arrays.items() if name.startswith(REST)}
    try:
        described = network_of(found.about, {name: tuple(x.shape) for name, x in params.items()})
        if not described.is_own:
            check_parameters(described.model, params)
            for name, x in params.items():
                checks.check_floating(name, x)
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from None
    return Saved(described, params, rest, file)


def network_of(about: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> Network:
    """The network that a file describes; ValueError if it describes none."""
    try:
        if about.get("network") is not None:
            return network.from_json(about["network"])
        return translate.network_of(about.get("config", {}), shapes)
    except (TypeError, LookupError, AttributeError, OverflowError, RecursionError) as error:
        said = f"{type(error).__name__}: {on_one_line(str(error))[:200]}"
        raise ValueError(f"the description of the network is not whole ({said})") from None


def write_saved(folder: str | Path, described: Network, params: Mapping[str, Any], rest: Mapping[str, Any]) -> Path:
    """Writes a network into a folder; what is there of an earlier one is replaced whole. ValueError if it cannot."""
    arrays = {f"{checkpoint.PREFIX}{name}": x for name, x in params.items()}
    arrays |= {f"{REST}{name}": x for name, x in rest.items()}
    content = checkpoint.Checkpoint(arrays, {"spec": SPEC_VERSION, "network": described.to_json()})
    path = Path(folder) / MODEL
    try:
        make_folder(path.parent)
        write_whole(path, checkpoint.to_bytes(content, checkpoint.PARAMETERS))
    except Refused as error:
        raise ValueError(str(error)) from None
    return path


def load_net(path: str | Path, build: Callable | None, net_of: Callable, put_variables: Callable) -> Any:
    """The PonderNet of a backend at a path, in evaluation mode; ValueError if there is none or it does not fit."""
    saved = read_saved(path)
    net = net_of(saved.network, build)
    try:
        put_variables(net, saved.params, saved.rest)
    except ValueError as error:
        raise ValueError(f"{saved.path} does not fit the network: {error}") from None
    net.eval()
    return net
