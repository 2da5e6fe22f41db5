"""ONNX graphs written node by node: a graph under construction is called with an operator and gives its result's name.

>>> g = Graph()
>>> g("Add", "x", np.float32(1))
'add_2'
"""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

Argument = str | np.ndarray | np.generic  # the name of a value, or a constant
Carried = dict[str, str]  # the names of a loop's values
Start = dict[str, tuple[str, str, tuple[Any, ...]]]  # of each its first value, dtype and shape


def dtype_code(dtype: str) -> int:
    return helper.np_dtype_to_tensor_dtype(np.dtype(dtype))


def info(name: str, dtype: str, shape: tuple[Any, ...]) -> onnx.ValueInfoProto:
    """The declaration of an input or output."""
    return helper.make_tensor_value_info(name, dtype_code(dtype), shape)


class Graph:
    """Nodes and constants so far. The body of a loop shares its names and constants with the graph around it."""

    def __init__(self, around: "Graph | None" = None):
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[tuple, onnx.TensorProto] = {} if around is None else around.constants
        self.numbers: Any = itertools.count(1) if around is None else around.numbers

    def __call__(self, operator: str, *arguments: Argument, **attributes: Any) -> str:
        """Adds a node; the name of its one result."""
        inputs = [argument if isinstance(argument, str) else self.constant(argument) for argument in arguments]
        name = f"{operator.lower()}_{next(self.numbers)}"
        self.nodes.append(helper.make_node(operator, inputs, [name], **attributes))
        return name

    def constant(self, value: np.ndarray | np.generic, name: str | None = None) -> str:
        """The name of a constant; equal ones are kept once."""
        array = np.array(value, order="C")
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self.constants:
            self.constants[key] = numpy_helper.from_array(array, name or f"constant_{next(self.numbers)}")
        return self.constants[key].name

    def rename(self, value: str, name: str) -> None:
        self.nodes.append(helper.make_node("Identity", [value], [name]))

    def when(self, condition: str, make: Callable[["Graph"], str], old: str, dtype: str, shape: tuple[Any, ...]) -> str:
        """The name of what `make` computes where the condition holds, of the old value where it does not."""
        branches = {}
        for branch, write in (("then_branch", make), ("else_branch", lambda inner: old)):
            inner, result = Graph(self), f"{branch}_{next(self.numbers)}"
            inner.rename(write(inner), result)
            branches[branch] = helper.make_graph(inner.nodes, branch, [], [info(result, dtype, shape)])
        return self("If", condition, **branches)

    def loop(
        self,
        most: int,
        start: Start,
        body: Callable[["Graph", str, Carried], tuple[str, Carried]],
    ) -> Carried:
        """A Loop of at most `most` turns.

        Args:
          most: largest number of turns.
          start: what is carried from turn to turn.
          body: from the body's graph, the number of the turn (from 0) and the carried values' names to the name of a
            bool, whether to go on, and of the new values.

        Returns:
          The names of the values after the last turn.
        """
        inner = Graph(self)
        go_on, new = body(inner, "turn", {name: f"{name}_before" for name in start})
        inner.rename(go_on, "go_on")
        for name, value in new.items():
            inner.rename(value, f"{name}_after")
        carried = {name: (dtype, shape) for name, (_, dtype, shape) in start.items()}
        before = [info(f"{name}_before", *kind) for name, kind in carried.items()]
        after = [info(f"{name}_after", *kind) for name, kind in carried.items()]
        graph = helper.make_graph(
            inner.nodes,
            "step",
            [info("turn", "int64", ()), info("went_on", "bool", ()), *before],
            [info("go_on", "bool", ()), *after],
        )
        first = [value for value, _, _ in start.values()]
        last = {name: f"{name}_last" for name in start}
        inputs = [self.constant(np.int64(most)), self.constant(np.bool_(True)), *first]
        self.nodes.append(helper.make_node("Loop", inputs, list(last.values()), body=graph))
        return last
