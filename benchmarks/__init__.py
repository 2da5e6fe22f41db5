"""Measurements beside the tests: speed (`python -m benchmarks`) and other implementations (`... benchmarks.peers`)."""

import tasks  # noqa: F401 (which takes the signals of a command before anything large is imported)
