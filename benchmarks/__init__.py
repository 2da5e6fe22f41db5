"""Measurements beside the tests: `python -m benchmarks` (speed, as ratios) and `python -m benchmarks.peers` (other implementations)."""
