"""Builds the distribution, installs it elsewhere, and uses it as a stranger would."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("build", reason="nothing is built, and nothing is fetched, without build and hatchling")
pytest.importorskip("hatchling")

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = {"ponder_ref", "ponder_torch", "ponder_jax"}
SPEC_FILES = sorted(path.relative_to(ROOT / "spec").as_posix() for path in (ROOT / "spec").rglob("*") if path.is_file())

DATA_OF_TASKS = {
    path.relative_to(ROOT).as_posix()
    for path in (ROOT / "tasks").rglob("*")
    if path.is_file() and path.suffix != ".py" and "__pycache__" not in path.parts
}


def run(*command: str | Path, cwd: Path, check: bool = True) -> subprocess.CompletedProcess[str]:
    """The finished command, with nothing of this environment on its path; pip has no settings and asks no server."""
    hidden = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "PIP_")
    env = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
    env |= {"PIP_CONFIG_FILE": os.devnull, "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INDEX": "1"}
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=env | {"PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
    )
    assert not check or done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done


def make_environment(folder: Path, *, pip: bool, libraries: bool) -> Path:
    """The interpreter of a new environment, which may see the libraries of this one but not its editable installs.

    A folder named in a .pth file is put on the path, but the .pth files in that folder are not read: NumPy and
    Hypothesis are found, an editable install of this project is not.
    """
    venv.create(folder, with_pip=pip, symlinks=True)
    scheme = {"base": str(folder), "platbase": str(folder)}
    if libraries:
        # All of them: an environment may see the libraries of another one.
        paths = [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
        (Path(sysconfig.get_path("purelib", "venv", vars=scheme)) / "libraries.pth").write_text("\n".join(paths))
    return Path(sysconfig.get_path("scripts", "venv", vars=scheme)) / Path(sys.executable).name


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The sdist of the repository and the wheel made from that sdist."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT, cwd=folder)
    (sdist,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    return sdist, wheel


@pytest.fixture(scope="module")
def wheel_python(built: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment into which the wheel is installed."""
    folder = tmp_path_factory.mktemp("wheel")
    python = make_environment(folder / "env", pip=True, libraries=True)
    run(
        python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--ignore-installed", built[1], cwd=folder
    )
    return python


@pytest.fixture(scope="module")
def editable_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment into which the repository is installed editable."""
    folder = tmp_path_factory.mktemp("editable")
    python = make_environment(folder / "env", pip=True, libraries=True)
    flags = ["--quiet", "--no-deps", "--ignore-installed", "--no-build-isolation"]
    run(python, "-m", "pip", "install", *flags, "-e", ROOT, cwd=folder)
    return python


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the files that make up a clone, with nothing installed."""
    folder = tmp_path_factory.mktemp("clone")
    for name in ("ponder_ref", "backends", "spec"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def spec_report(python: Path, folder: Path) -> list[str]:
    """Where an interpreter finds the spec, and how many requirements, vector files and tolerances it reads there."""
    code = (
        "from ponder_ref.conformance import spec_data as s; "
        "print(s.spec_folder()); print(len(s.requirements()), len(s.vectors()), len(s.tolerances()) > 0)"
    )
    return run(python, "-c", code, cwd=folder).stdout.splitlines()


def expected_counts() -> str:
    ids = re.findall(r"^\| [A-Z]\d+ \|", (ROOT / "spec" / "README.md").read_text(encoding="utf-8"), flags=re.M)
    return f"{len(ids)} {len(list((ROOT / 'spec' / 'vectors').glob('*.json')))} True"


def test_sdist_is_complete(built: tuple[Path, Path]):
    with tarfile.open(built[0]) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
    assert {f"spec/{name}" for name in SPEC_FILES} <= names
    assert {"README.md", "LICENSE", "CHANGELOG.md", "pyproject.toml", "noxfile.py"} <= names
    assert {"ponder_ref/__init__.py", "tests/test_packaging.py"} <= names
    assert {"backends/torch/ponder_torch/__init__.py", "backends/jax/ponder_jax/__init__.py"} <= names
    assert DATA_OF_TASKS and names >= DATA_OF_TASKS  # a shipped checkpoint among them
    assert [name for name in names if re.search(r"__pycache__|\.pyc$|_cache/|(^|/)runs/", name)] == []


def test_wheel_holds_the_packages_and_the_spec(built: tuple[Path, Path]):
    with zipfile.ZipFile(built[1]) as archive:
        names = set(archive.namelist())
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == PACKAGES  # no tasks, benchmarks, tests
    assert {f"ponder_ref/_spec/{name}" for name in SPEC_FILES} <= names
    assert {f"{package}/py.typed" for package in PACKAGES} <= names  # type checkers may read the annotations
    assert any(re.fullmatch(r"pondernet-[^/]+\.dist-info/licenses/LICENSE", name) for name in names)
    python_files = {name for name in names if name.endswith(".py")}
    sources = {"ponder_ref": ROOT, "ponder_torch": ROOT / "backends" / "torch", "ponder_jax": ROOT / "backends" / "jax"}
    for package, parent in sources.items():
        ours = {path.relative_to(parent).as_posix() for path in (parent / package).rglob("*.py")}
        assert ours == {name for name in python_files if name.startswith(f"{package}/")}


def test_wheel_needs_numpy_alone_and_names_the_backends(built: tuple[Path, Path]):
    with zipfile.ZipFile(built[1]) as archive:
        (info,) = {name.split("/")[0] for name in archive.namelist() if name.split("/")[0].endswith(".dist-info")}
        metadata = archive.read(f"{info}/METADATA").decode()
        entry_points = archive.read(f"{info}/entry_points.txt").decode()
    needed = [line for line in metadata.splitlines() if line.startswith("Requires-Dist:") and "extra ==" not in line]
    assert [re.match(r"Requires-Dist: (\w+)", line)[1] for line in needed] == ["numpy"]
    assert "[pondernet.backends]" in entry_points
    assert all(package in entry_points for package in PACKAGES)


def test_wheel_reads_its_own_spec(wheel_python: Path, tmp_path: Path):
    folder, counts = spec_report(wheel_python, tmp_path)
    assert Path(folder).name == "_spec"
    assert not Path(folder).is_relative_to(ROOT)
    assert counts == expected_counts()


def test_editable_install_reads_the_repository(editable_python: Path, tmp_path: Path):
    folder, counts = spec_report(editable_python, tmp_path)
    assert Path(folder) == ROOT / "spec"
    assert counts == expected_counts()


def test_editable_install_finds_the_backends_and_hides_no_framework(editable_python: Path, tmp_path: Path):
    code = (
        "from importlib.util import find_spec\n"
        "for name in ('ponder_torch', 'ponder_jax', 'torch', 'jax'):\n"
        "    spec = find_spec(name)\n"
        "    print(name, spec.origin if spec else 'missing')\n"
    )
    found = dict(line.split(" ", 1) for line in run(editable_python, "-c", code, cwd=tmp_path).stdout.splitlines())
    for framework in ("torch", "jax"):
        own = ROOT / "backends" / framework
        assert Path(found[f"ponder_{framework}"]) == own / f"ponder_{framework}" / "__init__.py"
        assert found[framework] != "None"  # a namespace package: a folder of that name on the path
        assert not found[framework].startswith(str(ROOT / "backends"))


@pytest.mark.parametrize("environment", ["wheel_python", "editable_python"])
def test_judge_shows_its_help(environment: str, request: pytest.FixtureRequest, tmp_path: Path):
    done = run(request.getfixturevalue(environment), "-m", "ponder_ref.conformance", "--help", cwd=tmp_path)
    assert "--backend" in done.stdout
    assert "--level" in done.stdout


@pytest.mark.parametrize("libraries", [False, True], ids=["without-numpy", "without-the-backend"])
def test_bare_clone_says_what_to_install(libraries: bool, clone: Path, tmp_path: Path):
    if libraries and Path(sysconfig.get_path("purelib"), "ponder_torch").exists():
        pytest.skip("this environment has the backends installed from a wheel")
    python = make_environment(tmp_path / "env", pip=False, libraries=libraries)
    done = run(python, "-m", "ponder_ref.conformance", "--backend", "ponder_torch", cwd=clone, check=False)
    assert done.returncode == 2, done.stderr
    (sentence,) = done.stderr.strip().splitlines()
    assert "pip install -e" in sentence
