"""The RNN of M8 as an ONNX graph with a Loop that ends when every row has halted; NumPy and the onnx package alone.

Written node by node and not traced, so that the graph has what the standard says and no more. It keeps to operators
of opset 18 in dtypes that runtimes have had for long: the 32-bit words of Threefry are computed in int64.
"""

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx import helper

from ponder_ref.models.rnn import Rnn
from ponder_ref.sampling import MASK, PARITY, ROTATIONS
from tasks.export.graph import Carried, Graph, Start, dtype_code, info
from tasks.export.policy import Exit, check_written, port, ports

POLICIES = ("sample", "quantile", "fixed", "expected")  # those that are written here
OPSET, IR_VERSION = 18, 9  # 18 is the first with bitwise operators; 9 is the format that came with it
BLOCK = 16  # steps whose uniforms are made together: a runtime's price is by the node, and Threefry has many
PORTS = (port("seed", "uint64"), "int64", "int64")
F, I = np.float32, np.int64  # noqa: E741


def about(model: Rnn, exit: Exit) -> dict[str, Any]:
    return {"format": "onnx", "opset": OPSET, "ir_version": IR_VERSION} | ports(model, exit, *PORTS)


def key_schedule(g: Graph, seed: str) -> list[tuple[str, str]]:
    """What is added to the two words at the start and after each group of rounds, from a 64-bit seed (S1, S2)."""
    low = g("Cast", g("BitwiseAnd", seed, np.uint64(MASK)), to=dtype_code("int64"))
    high = g("Cast", g("BitShift", seed, np.uint64(32), direction="RIGHT"), to=dtype_code("int64"))
    keys = [low, high, g("BitwiseXor", g("BitwiseXor", low, high), I(PARITY))]
    return [(low, high)] + [(keys[s % 3], g("Add", keys[(s + 1) % 3], I(s))) for s in range(1, 6)]


def uniforms(g: Graph, schedule: list[tuple[str, str]], ids: str, steps: str) -> str:
    """uₙ `[K, batch]` float32 of steps `[K, 1]` and example ids `[batch]`: Threefry-2x32-20's first word (S1, S2).

    x₁ is kept below 2³², so that x₁·2ʳ fits: its bits from the 32nd on are those that a rotation brings round. x₀ only
    grows by sums, and is masked where it is used.
    """
    x0, x1 = g("BitwiseAnd", ids, I(MASK)), steps
    for group, (k0, k1) in enumerate(schedule[:5]):
        x0, x1 = g("Add", x0, k0), g("BitwiseAnd", g("Add", x1, k1), I(MASK))
        for rotation in ROTATIONS[group % 2]:
            x0 = g("Add", x0, x1)
            moved = g("Mul", x1, I(1 << rotation))
            rotated = g("BitwiseOr", moved, g("Div", moved, I(1 << 32)))
            x1 = g("BitwiseAnd", g("BitwiseXor", rotated, x0), I(MASK))
    x0 = g("Add", x0, schedule[5][0])  # the second word is not used
    word = g("Div", g("BitwiseAnd", x0, I(MASK)), I(1 << 8))
    return g("Mul", g("Cast", word, to=dtype_code("float32")), F(2**-24))


def as_column(g: Graph, row: str) -> str:
    """`[batch]` as `[batch, 1]`, to stand beside predictions."""
    return g("Unsqueeze", row, np.array([1]))


class Step:
    """The body of the Loop: a step of the network, then the policy. Carried values by name, all of the whole batch.

    `h`, `answer` `[batch, outputs]`, `steps`, `running`, `iterations` (a count), and where the policy needs them
    `block` (uniforms), `reached` (Σ_{j<n} log(1 − λⱼ)), `top` (the largest log p so far) and `mass` (Σ pⱼ so far, in
    units of exp(top)).
    """

    def __init__(self, g: Graph, model: Rnn, params: Mapping[str, np.ndarray], exit: Exit):
        self.exit, self.outputs = exit, model.outputs
        at = {name: g.constant(np.asarray(value, F), name) for name, value in params.items() if name.startswith("rnn")}
        self.projected = g("Add", g("MatMul", "x", at["rnn.w_x"]), at["rnn.b"])
        self.w_h = at["rnn.w_h"]
        # One product for the two heads; the halting logit is the last column.
        self.w = g.constant(np.concatenate([params["output.w"], params["halt.w"]], 1).astype(F), "heads.w")
        self.b = g.constant(np.concatenate([params["output.b"], params["halt.b"]]).astype(F), "heads.b")
        self.schedule = key_schedule(g, "seed") if exit.policy == "sample" else []

    def start(self, g: Graph, hidden: int) -> Start:
        """The carried values before the first step."""
        batch = g("Shape", "x", start=0, end=1)

        def full(value: Any, *axes: int) -> tuple[str, str, tuple[Any, ...]]:
            array = np.asarray(value)
            shape = g("Concat", batch, np.array(axes), axis=0) if axes else batch
            return g("Expand", array, shape), array.dtype.name, ("batch", *axes)

        start = {"h": full(F(0), hidden), "answer": full(F(0), self.outputs), "steps": full(I(0))}
        start |= {"running": full(np.True_), "iterations": (g.constant(I(0)), "int64", ())}
        if self.exit.policy == "sample":
            zeros = g("Expand", F(0), g("Concat", np.array([BLOCK]), batch, axis=0))
            start |= {"block": (zeros, "float32", (BLOCK, "batch"))}
        if self.exit.policy in ("quantile", "expected"):
            start |= {"reached": full(F(0))}
        if self.exit.policy == "expected":
            start |= {"mass": full(F(0)), "top": full(F(-math.inf))}
        return start

    def __call__(self, g: Graph, turn: str, old: Carried) -> tuple[str, Carried]:
        n = g("Add", turn, I(1))
        h = g("Tanh", g("Add", self.projected, g("MatMul", old["h"], self.w_h)))
        heads = g("Add", g("MatMul", h, self.w), self.b)
        y_hat = g("Slice", heads, np.array([0]), np.array([self.outputs]), np.array([1]))
        z = g("Gather", heads, I(self.outputs), axis=1)
        new = {"h": h}
        if self.exit.policy in ("quantile", "expected"):
            new["reached"] = g("Sub", old["reached"], g("Softplus", z))
        halts = None
        if self.exit.policy == "sample":
            # Not the operator Sigmoid: where λ is small, onnxruntime is off by 0.2 % of it.
            lambdas = g("Reciprocal", g("Add", g("Exp", g("Neg", z)), F(1)))
            new["block"] = self.draw_block(g, turn, old["block"])
            halts = g("Less", g("Gather", new["block"], g("Mod", turn, I(BLOCK)), axis=0), lambdas)
        elif self.exit.policy == "quantile":
            halts = g("GreaterOrEqual", g("Sub", F(1), g("Exp", new["reached"])), F(self.exit.q))
        elif self.exit.policy == "expected" and self.exit.epsilon is not None:
            halts = g("Less", new["reached"], F(math.log(self.exit.epsilon)))
        at_last = g("Equal", n, I(self.exit.max_steps))
        stops = g("And", old["running"], at_last if halts is None else g("Or", halts, at_last))
        if self.exit.policy == "expected":
            new |= self.add_expected(g, old, y_hat, z, stops)
        else:
            new["answer"] = g("Where", as_column(g, stops), y_hat, old["answer"])
        new["steps"] = g("Where", stops, n, old["steps"])
        new["iterations"] = g("Add", old["iterations"], I(1))
        new["running"] = g("And", old["running"], g("Not", stops))
        left = g("ReduceSum", g("Cast", new["running"], to=dtype_code("int64")), keepdims=0)
        return g("Greater", left, I(0)), {name: new[name] for name in old}

    def draw_block(self, g: Graph, turn: str, old: str) -> str:
        """The uniforms of the BLOCK steps that this one is among, `[BLOCK, batch]`: made at the first of them."""

        def make(inner: Graph) -> str:
            steps = inner("Add", turn, np.arange(1, BLOCK + 1)[:, None])
            return uniforms(inner, self.schedule, "example_ids", steps)

        at_first = g("Equal", g("Mod", turn, I(BLOCK)), I(0))
        return g.when(at_first, make, old, "float32", (BLOCK, "batch"))

    def add_expected(self, g: Graph, old: Carried, y_hat: str, z: str, stops: str) -> Carried:
        """pₙŷₙ and pₙ added to the sums of the rows that run, relative to their largest p (H2 to H4, H8)."""
        log_p = g("Sub", old["reached"], g("Softplus", g("Neg", z)))
        if self.exit.remainder == "last":
            log_p = g("Where", stops, old["reached"], log_p)
        top = g("Max", old["top"], log_p)
        scale, p = g("Exp", g("Sub", old["top"], top)), g("Exp", g("Sub", log_p, top))
        mass = g("Add", g("Mul", old["mass"], scale), p)
        answer = g("Add", g("Mul", old["answer"], as_column(g, scale)), g("Mul", as_column(g, p), y_hat))
        running = old["running"]
        return {
            "top": g("Where", running, top, old["top"]),
            "mass": g("Where", running, mass, old["mass"]),
            "answer": g("Where", as_column(g, running), answer, old["answer"]),
        }


def write(model: Rnn, params: Mapping[str, np.ndarray], exit: Exit, description: Mapping[str, Any]) -> bytes:
    """The file: inputs and outputs as `ports` has them, the description as JSON in the metadata under "pondernet"."""
    check_written(exit, POLICIES, "onnx")
    g = Graph()
    step = Step(g, model, params, exit)
    last = g.loop(exit.max_steps, step.start(g, model.hidden), step)
    answer = last["answer"]
    if exit.policy == "expected":
        answer = g("Div", answer, as_column(g, last["mass"]))
    g.rename(g("Squeeze", answer, np.array([1])) if model.outputs == 1 else answer, "y_hat")
    g.rename(last["steps"], "steps")
    g.rename(last["iterations"], "iterations")
    inputs, outputs = (
        [info(each["name"], each["dtype"], tuple(each["shape"])) for each in group]
        for group in ports(model, exit, *PORTS).values()
    )
    graph = helper.make_graph(g.nodes, "ponder", inputs, outputs, list(g.constants.values()))
    made = helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
        producer_name="pondernet",
        doc_string="PonderNet with a Loop that ends when every row has halted",
    )
    helper.set_model_props(made, {"pondernet": json.dumps(dict(description), sort_keys=True)})
    onnx.checker.check_model(made, full_check=True)
    return made.SerializeToString(deterministic=True)
