"""What the judge needs besides the mathematics, and the dtype rule (spec B3, B8 and backend.md)."""

import functools
import inspect
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.experimental import io_callback

from ponder_ref import checks

NAME = "jax"
DTYPES = ("float64", "float32", "bfloat16", "float16")
ENVIRONMENT = {"float64": {"JAX_ENABLE_X64": "1"}}  # float64 is a choice for the whole process in JAX
# A judge compiles a thousand tiny functions: without fusions and optimisation XLA does that five times sooner.
# XLA ends the process at a flag that it does not know: JAX 0.12 has no fusion emitters to turn off.
_FUSION = "--xla_cpu_use_fusion_emitters=false " if jax.__version_info__[:2] < (0, 11) else ""
QUICK = {
    "XLA_FLAGS": f"{_FUSION}--xla_backend_optimization_level=0"
    " --xla_llvm_disable_expensive_passes=true --xla_cpu_parallel_codegen_split_count=1"
}


def from_numpy(array, dtype: str) -> jax.Array:
    """A JAX array of the dtype with the values of a NumPy array; put there without compiling anything."""
    return jax.device_put(np.asarray(array).astype(jnp.bfloat16 if dtype == "bfloat16" else dtype))


def to_numpy(x: jax.Array) -> np.ndarray:
    """A NumPy array with the array's values and dtype; bfloat16, which NumPy lacks, becomes float32."""
    array = np.asarray(x)
    jax.effects_barrier()  # what was to be told to the host meanwhile (`witness`) has been
    return array.astype(np.float32) if array.dtype == jnp.bfloat16 else array


@functools.lru_cache(maxsize=256)
def _slope(fn: Callable, count: int) -> Callable:
    return jax.jit(jax.value_and_grad(fn, argnums=tuple(range(count))))


def value_and_grad(fn: Callable, *arrays: jax.Array, constants: tuple = ()):
    """The scalar fn(*arrays, *constants) and its gradient with respect to each array; compiled once for each fn."""
    return _slope(fn, len(arrays))(*arrays, *constants)


def compiled(fn: Callable, *, optimize: bool = False) -> Callable:
    """fn as one XLA computation, which is always optimised."""
    del optimize
    return jax.jit(fn)


def vmapped(fn: Callable, in_axes: tuple) -> Callable:
    """fn mapped over one more axis of its arguments, as one XLA computation."""
    return jax.jit(jax.vmap(fn, in_axes=tuple(in_axes)))


def witness(fn: Callable, x: jax.Array) -> jax.Array:
    """x; fn gets its NumPy array on the host each time it is computed, in compiled code too, and not when traced."""
    io_callback(lambda values: fn(np.asarray(values)), None, x)
    return x


@functools.partial(jax.jit, static_argnums=(0, 1))
def _call(fn: Callable, static: tuple, arrays: dict):
    return fn(**arrays, **dict(static))


def jitted(fn: Callable) -> Callable:
    """fn as one XLA computation for each set of shapes, dtypes and Python arguments."""
    signature = inspect.signature(fn)

    @functools.wraps(fn)
    def call(*args, **kwargs):
        given = signature.bind(*args, **kwargs).arguments
        arrays = {name: value for name, value in given.items() if isinstance(value, (jax.Array, np.ndarray))}
        static = tuple((name, value) for name, value in given.items() if name not in arrays)
        if any(isinstance(value, Tracer) for value in arrays.values()):
            return fn(*args, **kwargs)  # somebody compiles already
        try:
            hash(static)
        except TypeError:  # a list where an array should be: let fn complain of it
            return fn(*args, **kwargs)
        return _call(fn, static, arrays)

    return call


def as_float(*arrays: jax.Array) -> tuple[jax.Array, ...]:
    """The arrays in the widest of their dtypes, float32 at least: half precision is computed in float32."""
    dtype = jnp.float64 if any(x.dtype == jnp.float64 for x in arrays) else jnp.float32
    return tuple(jnp.asarray(x, dtype) for x in arrays)


def step_numbers(x: jax.Array) -> jax.Array:
    """n = 1..N along the first axis of x, `[N, 1, ...]`."""
    return jnp.arange(1, x.shape[0] + 1, dtype=jnp.int32).reshape(-1, *[1] * (x.ndim - 1))


def length_array(lengths: jax.Array | None, x: jax.Array) -> jax.Array | int:
    """Nᵢ for each example, or N."""
    checks.check_lengths(lengths, x.shape[1:])
    return x.shape[0] if lengths is None else jnp.asarray(lengths, jnp.int32)


def expand_right(x: jax.Array, ndim: int) -> jax.Array:
    """x with axes of length 1 added behind, up to ndim."""
    return x.reshape((*x.shape, *[1] * (ndim - x.ndim)))


def axes_of(x) -> frozenset:
    """The mesh axes over which an array, or what `jax.eval_shape` says of one, differs inside a `shard_map`."""
    kind = x if isinstance(x, jax.ShapeDtypeStruct) else jax.typeof(x)
    manual = getattr(kind, "mat", None) or getattr(kind, "manual_axis_type", None)
    return frozenset() if manual is None else frozenset(manual.varying or ())


def _vary(x: jax.Array, axes: frozenset) -> jax.Array:
    """The array as one that differs over these axes, too."""
    missing = tuple(sorted(axes - axes_of(x), key=str))
    return jax.lax.pcast(x, missing, to="varying") if missing else x


def vary_like(tree, like):
    """A tree whose leaves differ over the axes over which those of another do; as it is outside a `shard_map`."""
    return jax.tree.map(lambda x, other: _vary(x, axes_of(other)), tree, like)


def in_shard_map() -> bool:
    """Whether this is traced inside a `shard_map`."""
    return bool(jax.sharding.get_abstract_mesh().manual_axes)


def on_any(condition: jax.Array) -> jax.Array:
    """Whether it holds on any device of a `shard_map`: the same answer on all, so that collectives may depend on it."""
    axes = tuple(sorted(axes_of(condition), key=str))
    return jax.lax.psum(condition.astype(jnp.int32), axes) > 0 if axes else condition


def settle_axes(fn: Callable, tree, deciding: Callable | None = None):
    """A tree that differs over the same mesh axes as fn(tree), leaf by leaf: a loop must keep its types.

    Args:
      fn: from a tree to one of the same structure; or the body of a loop.
      tree: where the loop begins; its zeros, say, differ over no axis.
      deciding: whether the loop goes on, of a tree; over its axes all leaves come to differ.
    """

    def after(tree):
        new = fn(tree)
        axes = frozenset() if deciding is None else axes_of(deciding(tree))
        return jax.tree.map(lambda x: _vary(x, axes), new)

    while in_shard_map():
        grown = vary_like(tree, jax.eval_shape(after, tree))
        if all(map(lambda x, y: axes_of(x) == axes_of(y), jax.tree.leaves(grown), jax.tree.leaves(tree))):
            break
        tree = grown
    return tree


def either(condition: jax.Array, yes: Callable, no: Callable, *operands):
    """`jax.lax.cond` whose branches may differ over different mesh axes."""
    if not in_shard_map():
        return jax.lax.cond(condition, yes, no, *operands)
    types = [jax.eval_shape(branch, *operands) for branch in (yes, no)]

    def alike(branch: Callable) -> Callable:
        def run(*operands):
            result = vary_like(vary_like(branch(*operands), types[0]), types[1])
            return jax.tree.map(lambda x: _vary(x, axes_of(condition)), result)

        return run

    return jax.lax.cond(condition, alike(yes), alike(no), *operands)


def loop_while(going_on: Callable, body: Callable, carry):
    """`jax.lax.while_loop` from a carry that may differ over fewer mesh axes than what the body makes of it."""
    carry = settle_axes(body, carry, going_on)
    return jax.lax.while_loop(going_on, lambda carry: vary_like(body(carry), carry), carry)
