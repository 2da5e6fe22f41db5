"""For all tests: no result depends on the user's shell, on the load of the machine, or on an earlier run."""

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from importlib.util import find_spec

import numpy as np
import pytest
from hypothesis import HealthCheck, configuration, settings

# What a shell may have set, and what would change programs that are run by a test. It goes before anything is imported.
KEPT = {"PYTHONPATH", "PYTHONHOME", "PYTHONUTF8", "PYTHONCOERCECLOCALE", "PYTHONHASHSEED", "PYTHONDONTWRITEBYTECODE"}
KEPT |= {"PYTHONPYCACHEPREFIX", "JAX_PLATFORMS", "JAX_ENABLE_X64"}
for name in [name for name in os.environ if name.startswith(("PYTHON", "JAX_", "MPL", "PONDERNET_CACHE"))]:
    if name not in KEPT:
        del os.environ[name]
os.environ.setdefault("JAX_PLATFORMS", "cpu")

# A shell without job control has its background jobs ignore SIGINT. Programs inherit that, and tests send them signals.
for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGTERM, signal.SIG_DFL)):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, handler)

if find_spec("jax") is not None:
    # XLA compiles thousands of tiny functions here, so it does that quickly, unless flags are set.
    from ponder_jax.arrays import QUICK

    for name, value in QUICK.items():
        os.environ.setdefault(name, value)

# The same examples in every run, however slow the machine is; nothing is read from an earlier run.
settings.register_profile(
    "tests", derandomize=True, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("tests")


def pytest_configure(config: pytest.Config) -> None:
    """A folder for what libraries keep between runs; pytest-xdist's workers share the one of their controller."""
    if not hasattr(config, "workerinput"):
        folder = tempfile.mkdtemp(prefix="pondernet-tests-")
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
        os.environ["PONDERNET_TESTS"] = folder
        os.environ["MPLCONFIGDIR"] = folder
        if find_spec("matplotlib") is not None:
            # The list of fonts is made once, here: a process that needs over 5 seconds for it says so on stderr.
            subprocess.run([sys.executable, "-c", "import matplotlib.font_manager"], capture_output=True)
    configuration.set_hypothesis_home_dir(os.environ["PONDERNET_TESTS"])


@pytest.fixture(scope="session", autouse=True)
def plain_terminal():
    """Programs print 80 columns without colours. pytest itself has looked at these variables by now."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "80")
        patch.setenv("NO_COLOR", "1")
        for name in ("LINES", "FORCE_COLOR", "CLICOLOR_FORCE", "PY_COLORS"):
            patch.delenv(name, raising=False)
        yield


@pytest.fixture(autouse=True)
def seeded():
    """What a test draws without a seed of its own does not depend on the tests that the same process ran before."""
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002 (the state that all share)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)
