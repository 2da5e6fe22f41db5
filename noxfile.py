"""Sessions of the project: `nox -l` lists them, bare `nox` runs the quick ones.

Each session has an environment of its own, kept between runs; `nox -R` also skips the installation.
"""

import os
import tempfile
from pathlib import Path

import nox

nox.needs_version = ">=2024.4.15"
nox.options.default_venv_backend = "virtualenv"
nox.options.reuse_venv = "yes"
# A Python that is not installed is skipped, on CI too, and never downloaded.
nox.options.error_on_missing_interpreters = False
nox.options.download_python = "never"

ROOT = Path(__file__).resolve().parent
CLASSIFIERS = nox.project.load_toml(ROOT / "pyproject.toml")["project"]["classifiers"]
PYTHONS = [line.split()[-1] for line in CLASSIFIERS if line.startswith("Programming Language :: Python :: 3.")]
TEST_ENV = {"JAX_PLATFORMS": "cpu"}  # the tests are meant for the CPU
FRAMEWORK_TESTS = ("test_backend_*.py", "test_agree*.py")
FRAMEWORKS = ("torch", "jax")

ABSENT = (
    "import sys; from importlib.util import find_spec; "
    "sys.exit('; '.join(f'{name} must not be installed here' for name in sys.argv[1:] if find_spec(name)) or 0)"
)


def install(session: nox.Session, *extras: str) -> None:
    """The project, editable, with the extras; plain pip takes torch's CPU build where the environment offers one."""
    session.install("-e", f".[{','.join(extras)}]")


def check_absent(session: nox.Session, *frameworks: str) -> None:
    """Stops the session if a framework that it must do without is installed."""
    session.run("python", "-c", ABSENT, *frameworks)


def judge(session: nox.Session, *args: str) -> None:
    """The conformance suite. torch keeps what it compiles: nothing of a run that was killed half-way may be found."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as empty:
        variables = {**TEST_ENV, "TORCHINDUCTOR_CACHE_DIR": empty}
        session.run("python", "-m", "ponder_ref.conformance", *args, env=variables)


def run_pytest(session: nox.Session, *args: str) -> None:
    """pytest, files side by side, with what stands behind `--` on nox's command line."""
    side_by_side = ("-n", "auto", "--maxprocesses", "4", "--dist", "loadfile")
    session.run("pytest", *side_by_side, *args, *session.posargs, env=TEST_ENV)


def test_backend(session: nox.Session, framework: str, other: str) -> None:
    """Installs one framework alone, judges its backend (compiled code too), and runs the backend's own tests."""
    install(session, framework, "tasks", "test")
    check_absent(session, other)
    judge(session, "--backend", f"ponder_{framework}", "--level", "infer", "--annex")
    judge(session, "--backend", f"ponder_{framework}", "--level", "full", "--annex", "--only", "B9")
    session.run("pytest", "--doctest-modules", f"backends/{framework}", env=TEST_ENV)
    run_pytest(session, *sorted(f"tests/{p.name}" for p in (ROOT / "tests").glob(f"test_backend_{framework}*.py")))


def test_reference(session: nox.Session) -> None:
    """Installs no framework, judges the reference, and runs its doctests and the tests that need no framework."""
    install(session, "tasks", "test")
    check_absent(session, *FRAMEWORKS)
    judge(session, "--backend", "ponder_ref", "--level", "full", "--annex")
    need_a_framework = ("--ignore=tasks/export/stablehlo.py", "--ignore-glob=tasks/*/model_*.py")
    session.run("pytest", "--doctest-modules", *need_a_framework, "ponder_ref", "tasks", env=TEST_ENV)
    files = set((ROOT / "tests").glob("test_*.py"))
    files -= {path for pattern in FRAMEWORK_TESTS for path in (ROOT / "tests").glob(pattern)}
    run_pytest(session, *sorted(str(path.relative_to(ROOT)) for path in files))


@nox.session
def test_ref(session: nox.Session) -> None:
    """Judge the NumPy reference, run its doctests and every test that needs no framework."""
    test_reference(session)


@nox.session
def test_torch(session: nox.Session) -> None:
    """Judge and test the torch backend where JAX is not installed."""
    test_backend(session, "torch", other="jax")


@nox.session
def test_jax(session: nox.Session) -> None:
    """Judge and test the JAX backend where torch is not installed."""
    test_backend(session, "jax", other="torch")


@nox.session
def test_agree(session: nox.Session) -> None:
    """Compare the two backends with each other, both frameworks in one environment."""
    install(session, "torch", "jax", "tasks", "test")
    # The layout again, now with frameworks to import.
    run_pytest(
        session, *sorted(f"tests/{p.name}" for p in (ROOT / "tests").glob("test_agree*.py")), "tests/test_layout.py"
    )


@nox.session(python=PYTHONS, default=False)
def test_ref_pythons(session: nox.Session) -> None:
    """As test_ref, on each Python that the package claims and that is installed."""
    test_reference(session)


@nox.session(python=PYTHONS, default=False)
def test_torch_pythons(session: nox.Session) -> None:
    """As test_torch, on each Python that the package claims and that is installed."""
    test_backend(session, "torch", other="jax")


@nox.session(python=PYTHONS, default=False)
def test_jax_pythons(session: nox.Session) -> None:
    """As test_jax, on each Python that the package claims and that is installed."""
    test_backend(session, "jax", other="torch")


@nox.session(default=False)
def conformance(session: nox.Session) -> None:
    """Judge a backend: `nox -s conformance -- --backend ponder_torch`; the reference without arguments."""
    args = session.posargs or ["--backend", "ponder_ref"]
    named = [name for name in FRAMEWORKS if any(f"ponder_{name}" in arg or arg == name for arg in args)]
    install(session, "judge", *named)
    judge(session, *args)


@nox.session
def lint(session: nox.Session) -> None:
    """Check style and formatting with ruff, and who imports whom with import-linter."""
    session.install("ruff>=0.9", "import-linter>=2.16")
    session.run("ruff", "check", *(session.posargs or ["."]))
    session.run("ruff", "format", "--check", *(session.posargs or ["."]))
    roots = os.pathsep.join(map(str, (ROOT, ROOT / "backends" / "torch", ROOT / "backends" / "jax")))
    session.run("lint-imports", "--no-cache", "--no-logo", env={"PYTHONPATH": roots})


@nox.session
def types(session: nox.Session) -> None:
    """Check types with pyright, both frameworks installed."""
    install(session, "torch", "jax", "tasks", "test")
    session.install("pyright[nodejs]>=1.1.390", "nox")
    session.run("pyright", *session.posargs)


@nox.session(default=False)
def docs(session: nox.Session) -> None:
    """Build the documentation into docs/_build/html; every warning is an error."""
    install(session, "docs")
    session.run("sphinx-build", "-W", "--keep-going", "-b", "html", *session.posargs, "docs", "docs/_build/html")


@nox.session(default=False)
def bench(session: nox.Session) -> None:
    """Run the benchmarks, both frameworks installed; arguments go to `python -m benchmarks`."""
    install(session, "torch", "jax", "tasks")
    session.run("python", "-m", "benchmarks", *session.posargs)


@nox.session(default=False)
def judge_peers(session: nox.Session) -> None:
    """Judge other public implementations and write the result to docs/peers.md."""
    install(session, "torch", "tasks", "judge")
    session.install("einops")
    # Without dependencies: what is imported of them needs torch and einops alone.
    session.install("--no-deps", "labml-nn==0.5.1", "ponder-transformer==0.0.8")
    session.run("python", "-m", "benchmarks.peers", *(session.posargs or ["--out", "docs/peers.md"]))
