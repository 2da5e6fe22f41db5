"""For all tests: XLA compiles thousands of tiny functions here, so it does that quickly, unless flags are set."""

import os
from importlib.util import find_spec

if find_spec("jax") is not None:
    from ponder_jax.arrays import QUICK

    for name, value in QUICK.items():
        os.environ.setdefault(name, value)
