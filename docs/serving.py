"""A server that streams requests through slots, beside one that computes N steps for each batch.

    python docs/serving.py            (needs torch and matplotlib; writes docs/figures/serving.png)

Requests arrive at random times. The streaming server takes a request as soon as a slot is free and answers it when it
halts; the other takes what waits, up to as many as there are slots, and answers when all N steps are done.
"""

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

OUT = Path(__file__).resolve().parent / "figures" / "serving.png"
WIDTH, STEPS, SLOTS = 256, 20, 32


def make_net():
    """A residual step network whose halting depends on the request: from 1 step to all of them."""
    import torch
    from torch import nn

    from ponder_torch import PonderNet

    torch.manual_seed(0)
    torch.set_num_threads(1)

    class Step(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.up, self.down = (
                nn.LayerNorm(WIDTH),
                nn.Linear(WIDTH, 4 * WIDTH),
                nn.Linear(4 * WIDTH, WIDTH),
            )
            self.head = nn.Linear(WIDTH, 1)

        def forward(self, x, h):
            h = h + self.down(torch.relu(self.up(self.norm(h + x))))
            return self.head(h).squeeze(-1), h, 2 * x[:, 0] - 0.5

    return PonderNet(Step(), max_steps=STEPS, initial_state=torch.zeros_like).eval()


def waiting(requests: np.ndarray, arrivals: np.ndarray, begin: float) -> Iterator[np.ndarray | None]:
    """Each request when its time has come; None while there is none."""
    for request, arrival in zip(requests, arrivals, strict=True):
        while time.perf_counter() - begin < arrival:
            yield None
        yield request


def serve_stream(net, requests: np.ndarray, arrivals: np.ndarray) -> np.ndarray:
    """When each request was answered, by `stream`."""
    from ponder_torch import stream

    done, begin = np.zeros(len(requests)), time.perf_counter()
    for answer in stream(net, waiting(requests, arrivals, begin), slots=SLOTS):
        done[answer.index] = time.perf_counter() - begin
    return done


def serve_fixed(net, requests: np.ndarray, arrivals: np.ndarray) -> np.ndarray:
    """When each request was answered, by batches of N steps."""
    import torch

    done, begin, first = np.zeros(len(requests)), time.perf_counter(), 0
    while first < len(requests):
        here = int((arrivals <= time.perf_counter() - begin).sum())
        batch = slice(first, min(here, first + SLOTS))
        if batch.stop > first:
            net.predict(torch.from_numpy(requests[batch]), policy="fixed")
            done[batch], first = time.perf_counter() - begin, batch.stop
    return done


def draw(arrivals: np.ndarray, servers: dict[str, np.ndarray], path: Path) -> None:
    """Requests answered over time, and how long each of them waited."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    plt.rcParams.update({"font.size": 11, "axes.spines.top": False, "axes.spines.right": False})
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4), dpi=110, layout="constrained")
    count = np.arange(1, len(arrivals) + 1)
    left.plot(np.sort(arrivals), count, color="0.6", ls="--", label="requests that have come")
    for (name, done), colour in zip(servers.items(), ("#0072b2", "#d55e00"), strict=True):
        left.plot(np.sort(done), count, color=colour, lw=2, label=name)
        right.plot(np.sort(done - arrivals) * 1e3, count / len(count), color=colour, lw=2, label=name)
    left.set(xlabel="seconds", ylabel="requests answered", ylim=(0, 1.35 * len(count)))
    right.set(xlabel="milliseconds from request to answer", ylabel="share of requests", xscale="log")
    left.legend(frameon=False, loc="upper left")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Software": None})


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--load", type=float, default=1.5, help="requests that come, over what N steps each could bear")
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    try:
        import matplotlib  # noqa: F401

        net = make_net()
    except ModuleNotFoundError as error:
        print(f"this needs {error.name!r}: pip install -e '.[torch,tasks]' in a clone installs it", file=sys.stderr)
        return 2
    rng = np.random.default_rng(0)
    requests = rng.normal(size=(options.requests, WIDTH)).astype(np.float32)
    capacity = (
        len(requests[: 4 * SLOTS]) / serve_fixed(net, requests[: 4 * SLOTS], np.zeros(4 * SLOTS)[: len(requests)])[-1]
    )
    arrivals = np.cumsum(rng.exponential(1 / (options.load * capacity), options.requests))
    servers = {
        "stream: a slot is free when its request halts": serve_stream(net, requests, arrivals),
        f"batches of {STEPS} steps": serve_fixed(net, requests, arrivals),
    }
    for name, done in servers.items():
        waits = (done - arrivals) * 1e3
        print(f"{name}: all answered after {done.max():.2f} s; median wait {np.median(waits):.1f} ms")
    draw(arrivals, servers, options.out)
    print(f"wrote {options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
