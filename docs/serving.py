"""A server that streams requests through slots, beside one that computes N steps for each batch, at several loads.

    python docs/serving.py            (needs torch and matplotlib; writes docs/figures/serving.png)

Requests arrive at random times. The streaming server takes a request as soon as a slot is free and answers it when it
halts; the other takes what waits, up to as many as there are slots, and answers when all N steps are done. A load of 1
is the rate of requests that full batches of N steps can just answer; above it their queue grows without end.
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

OUT = Path(__file__).resolve().parent / "figures" / "serving.png"
WIDTH, STEPS, SLOTS = 256, 20, 32
LOADS = (0.8, 1.5)
# The time of the processor is what a server of one thread takes if nothing else runs on its core.
CLOCKS: dict[str, Callable[[], float]] = {"cpu": time.process_time, "wall": time.perf_counter}


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


def waiting(requests: np.ndarray, arrivals: np.ndarray, now: Callable[[], float]) -> Iterator[np.ndarray | None]:
    """Each request when its time has come; None while there is none."""
    for request, arrival in zip(requests, arrivals, strict=True):
        while now() < arrival:
            yield None
        yield request


def since(clock: Callable[[], float]) -> Callable[[], float]:
    """Seconds since this call."""
    begin = clock()
    return lambda: clock() - begin


def serve_stream(net: Any, requests: np.ndarray, arrivals: np.ndarray, now: Callable[[], float]) -> np.ndarray:
    """When each request was answered, by `stream`."""
    from ponder_torch import stream

    done = np.zeros(len(requests))
    for answer in stream(net, waiting(requests, arrivals, now), slots=SLOTS):
        done[answer.index] = now()
    return done


def serve_fixed(net: Any, requests: np.ndarray, arrivals: np.ndarray, now: Callable[[], float]) -> np.ndarray:
    """When each request was answered, by batches of N steps."""
    import torch

    done, first = np.zeros(len(requests)), 0
    while first < len(requests):
        here = int((arrivals <= now()).sum())
        batch = slice(first, min(here, first + SLOTS))
        if batch.stop > first:
            net.predict(torch.from_numpy(requests[batch]), policy="fixed")
            done[batch], first = now(), batch.stop
    return done


def draw(served: dict[float, tuple[np.ndarray, dict[str, np.ndarray]]], clock: str, path: Path) -> None:
    """A row for each load: requests answered over time, and how long each of them waited."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    plt.rcParams.update({"font.size": 11, "axes.spines.top": False, "axes.spines.right": False})
    size, of = (11, 4 * len(served)), " of processor time" if clock == "cpu" else ""
    figure, rows = plt.subplots(len(served), 2, figsize=size, dpi=110, layout="constrained", squeeze=False)
    for (left, right), (load, (arrivals, servers)) in zip(rows, served.items(), strict=True):
        count = np.arange(1, len(arrivals) + 1)
        left.plot(np.sort(arrivals), count, color="0.6", ls="--", label="requests that have come")
        for (name, done), colour in zip(servers.items(), ("#0072b2", "#d55e00"), strict=True):
            left.plot(np.sort(done), count, color=colour, lw=2, label=name)
            right.plot(np.sort(done - arrivals) * 1e3, count / len(count), color=colour, lw=2, label=name)
        bears = "can" if load <= 1 else "cannot"
        left.set_title(f"load {load:g}: the batches {bears} keep up", loc="left")
        right.set_title(f"load {load:g}", loc="left")
        left.set(xlabel=f"seconds{of}", ylabel="requests answered", ylim=(0, 1.35 * len(count)))
        right.set(xlabel=f"milliseconds{of} from request to answer", ylabel="share of requests", xscale="log")
        left.legend(frameon=False, loc="upper left")
    waits = [axes.get_xlim() for _, axes in rows]
    for _, right in rows:  # one scale, so that the loads can be compared
        right.set_xlim(min(low for low, _ in waits), max(high for _, high in waits))
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Software": None})


def loads(text: str) -> tuple[float, ...]:
    """Positive numbers, separated by commas."""
    try:
        found = tuple(float(word) for word in text.split(","))
    except ValueError:
        found = ()
    if not found or not all(0 < load < 100 for load in found):
        raise argparse.ArgumentTypeError(f"must be numbers between 0 and 100, separated by commas, got {text!r}")
    return tuple(dict.fromkeys(found))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=1000, help="requests at each load (default: 1000)")
    shown = ",".join(map(str, LOADS))
    parser.add_argument("--loads", type=loads, default=LOADS, metavar="LIST", help=f"loads to try (default: {shown})")
    parser.add_argument("--clock", choices=CLOCKS, default="cpu", help="cpu beside busy neighbours (default: cpu)")
    parser.add_argument("--out", type=Path, default=OUT, help="the picture (default: docs/figures/serving.png)")
    options = parser.parse_args()
    if options.requests < 4 * SLOTS:
        parser.error(f"--requests must be at least {4 * SLOTS}, got {options.requests}")
    try:
        import matplotlib  # noqa: F401

        net = make_net()
    except ModuleNotFoundError as error:
        print(f"this needs {error.name!r}: pip install -e '.[torch,tasks]' in a clone installs it", file=sys.stderr)
        return 2
    rng, clock = np.random.default_rng(0), CLOCKS[options.clock]
    requests = rng.normal(size=(options.requests, WIDTH)).astype(np.float32)
    full, now = requests[: 4 * SLOTS], np.zeros(4 * SLOTS)
    serve_fixed(net, full, now, since(clock))  # a first time, which is slower
    rate = len(full) / serve_fixed(net, full, now, since(clock))[-1]
    gaps = rng.exponential(1, options.requests)
    served = {}
    for load in options.loads:
        arrivals = np.cumsum(gaps / (load * rate))
        servers = {
            "stream: a slot is free when its request halts": serve_stream(net, requests, arrivals, since(clock)),
            f"batches of {STEPS} steps": serve_fixed(net, requests, arrivals, since(clock)),
        }
        served[load] = arrivals, servers
        for name, done in servers.items():
            waits = (done - arrivals) * 1e3
            print(
                f"load {load:g}, {name}: all answered after {done.max():.2f} s ({options.clock}); "
                f"waited {np.median(waits):.1f} ms in the median, {np.quantile(waits, 0.9):.1f} ms at most for 90 %"
            )
    draw(served, options.clock, options.out)
    print(f"wrote {options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
