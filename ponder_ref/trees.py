"""Trees of arrays: nested tuples, lists, dicts and named tuples, as step networks carry them."""

import copy
from collections.abc import Callable
from typing import Any


def alike(first: Any, other: Any) -> bool:
    """Whether two nodes have the same places below them."""
    if isinstance(first, dict):
        return isinstance(other, dict) and first.keys() == other.keys()
    if isinstance(first, tuple | list):
        return isinstance(other, tuple | list) and len(first) == len(other)
    return (first is None) == (other is None) and not isinstance(other, dict | tuple | list)


def described(tree: Any) -> str:
    """What a node is, in a few words."""
    if tree is None:
        return "None"
    if isinstance(tree, dict):
        return f"a dict with {', '.join(sorted(map(repr, tree)))}" if tree else "an empty dict"
    return f"{len(tree)} things" if isinstance(tree, tuple | list) else "an array"


def check_alike(old: Any, new: Any) -> None:
    """Refuses a state whose structure is another than before: what has no place in the old one would be lost."""
    map_tree(lambda *leaves: None, old, new)


def map_tree(fn: Callable, *trees: Any) -> Any:
    """fn on the leaves that stand in the same place; None is an empty tree."""
    first = trees[0]
    for other in trees[1:]:
        if not alike(first, other):
            raise ValueError(f"state must keep its structure: {described(first)} became {described(other)}")
    if first is None:
        return None
    if isinstance(first, dict):
        parts = {name: map_tree(fn, *(tree[name] for tree in trees)) for name in first}
        if type(first) is dict:
            return parts
        result = copy.copy(first)  # of its own kind: an ordered dict stays one
        result.update(parts)
        return result
    if isinstance(first, tuple | list):
        parts = [map_tree(fn, *parts) for parts in zip(*trees, strict=True)]
        return type(first)(*parts) if hasattr(first, "_fields") else type(first)(parts)
    return fn(*trees)


def leaves_of(tree: Any) -> list[Any]:
    """The leaves of a tree, in order."""
    found: list[Any] = []
    map_tree(found.append, tree)
    return found
