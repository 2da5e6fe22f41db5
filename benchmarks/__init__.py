"""Measurements beside the tests: speed (`python -m benchmarks`) and other implementations (`... benchmarks.peers`)."""
