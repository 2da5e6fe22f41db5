"""Public implementations of PonderNet on trial: one adapter a peer, judged by `python -m benchmarks.peers`."""
