"""The JAX backend where the judge does not look: transformations, tracing, strict dtypes, and 50-digit arithmetic."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402

import ponder_jax  # noqa: E402
import ponder_jax as pj  # noqa: E402
import ponder_jax.losses  # noqa: E402
import ponder_ref  # noqa: E402
from ponder_jax.arrays import jitted  # noqa: E402
from ponder_ref.conformance import interface  # noqa: E402
from ponder_ref.conformance.compare import assert_close  # noqa: E402
from scripts.measure_errors import LOGITS, exact_log_halting, exact_loss  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
REMAINDERS = ("last", "normalize")
CORNERS = (1e4, -1e4, 89.0, -89.0, 40.0, -17.0, 0.0)
BETA = 0.25


def floats(*arrays) -> list:
    return [jnp.asarray(np.asarray(array, np.float32)) for array in arrays]


def total(z, losses, prior, *, remainder="last", lengths=None, weights=None, beta=BETA):
    """The training loss of logits: what nearly every test here differentiates."""
    log_p = pj.log_halting(z, remainder=remainder, lengths=lengths)
    return pj.ponder_loss(log_p, losses, prior, beta=beta, weights=weights).loss


def small(seed: int = 0, steps: int = 5, batch: tuple[int, ...] = (4,)):
    """Logits, losses and a prior of a small problem."""
    rng = np.random.default_rng(seed)
    z, losses = floats(rng.normal(size=(steps, *batch)) * 2, rng.normal(size=(steps, *batch)))
    return z, losses, pj.geometric_log_prior(0.3, steps)


def close(got, want, rtol=1e-5, atol=1e-7):
    np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=rtol, atol=atol)


@pytest.mark.parametrize("remainder", REMAINDERS)
@pytest.mark.parametrize("make", LOGITS.values(), ids=LOGITS)
def test_float32_against_fifty_digits(make, remainder: str):
    z = make()
    losses = np.random.default_rng(8).normal(size=z.shape) + np.linspace(0, 2, len(z))[:, None]
    losses = losses.astype(np.float32).astype(np.float64)
    prior = ponder_ref.geometric_log_prior(0.3, len(z)).astype(np.float64)
    truth = exact_loss(z, losses, prior, BETA, remainder)
    logits, costs, log_prior = floats(z, losses, prior)
    log_p = np.asarray(pj.log_halting(logits, remainder=remainder))
    assert np.isfinite(log_p).all()
    assert_close("H10", "log_p", log_p, exact_log_halting(z, remainder), kind="log_p", dtype="float32")
    value, (by_logits, by_losses) = pj.value_and_grad(
        lambda a, b: total(a, b, log_prior, remainder=remainder), logits, costs
    )
    size, kwargs = np.asarray(truth.size), {"kind": "gradient", "dtype": "float32"}
    assert_close("L4", "loss", value, np.asarray(truth.loss), kind="loss", dtype="float32", terms=size)
    assert_close("L5", "∂loss/∂z", by_logits, truth.by_logits, terms=truth.noise, **kwargs)
    assert_close("L5", "∂loss/∂ℓ", by_losses, truth.by_losses, terms=truth.by_losses, **kwargs)


def arguments(dtype=jnp.float32) -> dict:
    """Every function that takes arrays: a function of arrays alone, its arguments, and the shapes of its results."""
    z, losses, _ = (x.astype(dtype) for x in small())
    lam, batch = jax.nn.sigmoid(z), losses[0]
    y_hat, prior = jnp.ones((5, 4, 2), dtype), pj.uniform_log_prior(5).astype(dtype)
    matrix = (jnp.arange(6.0).reshape(3, 2) - 2).astype(jnp.float64 if dtype == jnp.float64 else jnp.float32)
    ids, lengths, step = jnp.arange(4), jnp.array([1, 3, 5, 2]), jnp.asarray(3)
    weights, rate = jnp.array([1.0, 0.0, 2.0, 1.0], dtype), jnp.asarray(0.1, matrix.dtype)
    word = jnp.arange(4).astype(jnp.uint32)
    beta, tau = jnp.asarray(0.1, matrix.dtype), 0.1
    return {
        "log_halting": (lambda a, b: pj.log_halting(a, remainder="normalize", lengths=b), (z, lengths), [(5, 4)]),
        "log_halting_from_lambdas": (
            lambda a, b: pj.log_halting_from_lambdas(a, lengths=b),
            (lam, lengths),
            [(5, 4)],
        ),
        "halting_lengths": (lambda a: pj.halting_lengths(a, epsilon=0.1), (z,), [(4,)]),
        "expected_steps": (pj.expected_steps, (z,), [(4,)]),
        "expected_prediction": (pj.expected_prediction, (z, y_hat), [(4, 2)]),
        "expected_loss": (pj.expected_loss, (z, losses), [(4,)]),
        "kl_divergence": (pj.kl_divergence, (z, prior), [(4,)]),
        "weighted_mean": (pj.weighted_mean, (batch, weights), [()]),
        "ponder_loss": (
            lambda a, b, c, d, e: pj.ponder_loss(a, b, c, beta=d, weights=e),
            (z, losses, prior, beta, weights),
            [(), (), (), (4,), (4,)],
        ),
        "threefry2x32": (lambda a: pj.threefry2x32((a, a), (a, a)), (word,), [(4,), (4,)]),
        "halting_uniforms": (lambda a: pj.halting_uniforms(1, a, max_steps=5), (ids,), [(5, 4)]),
        "sample_steps": (lambda a, b, c: pj.sample_steps(a, b, lengths=c), (lam, lam, lengths), [(4,)]),
        "draw_steps": (lambda a, b, c: pj.draw_steps(a, 1, b, lengths=c), (lam, ids, lengths), [(4,)]),
        "quantile_steps": (lambda a: pj.quantile_steps(a, q=0.5), (z,), [(4,)]),
        "act_halting": (pj.act_halting, (lam,), [(5, 4), (4,), (4,)]),
        "act_cost": (lambda a, b: pj.act_cost(a, b, tau=tau), (ids, batch), [(4,)]),
        "act_output": (pj.act_output, (lam, y_hat), [(4, 2)]),
        "adam_update": (
            lambda a, b, c: pj.adam_update(a, a, a, a * a, step=b, learning_rate=c),
            (matrix, step, rate),
            [(3, 2)] * 3,
        ),
        "orthogonalize": (pj.orthogonalize, (matrix,), [(3, 2)]),
        "muon_update": (
            lambda a, b, c: pj.muon_update(a, a, a, step=b, learning_rate=c),
            (matrix, step, rate),
            [(3, 2)] * 2,
        ),
        "clip_by_global_norm": (
            lambda a, b: tuple(pj.clip_by_global_norm({"a": a, "b": b}, max_norm=1.0).grads.values()),
            (matrix, batch),
            [(3, 2), (4,)],
        ),
    }


FUNCTIONS = sorted(arguments())


def test_every_function_with_arrays_is_called_here():
    without = {"geometric_log_prior", "uniform_log_prior", "poisson_log_prior", "schedule"}
    assert set(FUNCTIONS) == set(interface.FUNCTIONS) - without


@pytest.mark.parametrize("name", FUNCTIONS)
def test_jit_equals_eager(name: str):
    fn, args, shapes = arguments()[name]
    eager, graph = (jax.tree.leaves(made(*args)) for made in (fn, jax.jit(fn)))
    assert [x.shape for x in graph] == shapes
    for one, other in zip(eager, graph, strict=True):
        close(other, one, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16, jnp.float16])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_strict_dtype_promotion(name: str, dtype):
    fn, args, shapes = arguments(dtype)[name]
    with jax.numpy_dtype_promotion("strict"):
        for made in (fn, jax.jit(fn)):
            results = jax.tree.leaves(made(*args))
            assert [x.shape for x in results] == shapes
            assert {x.dtype for x in results if jnp.issubdtype(x.dtype, jnp.floating)} <= {jnp.dtype("float32")}


@pytest.mark.parametrize("remainder", REMAINDERS)
def test_strict_dtype_promotion_of_gradients(remainder: str):
    with jax.numpy_dtype_promotion("strict"):
        z, losses, prior = small()
        lengths, mask = jnp.array([1, 3, 5, 2]), jnp.array([True, False, True, True])
        loss = lambda a: total(a, losses, prior, remainder=remainder, lengths=lengths, weights=mask)  # noqa: E731
        assert jnp.isfinite(jax.grad(loss)(z)).all()
        assert jax.grad(loss)(z.astype(jnp.bfloat16)).dtype == jnp.bfloat16


@pytest.mark.parametrize("name", FUNCTIONS)
def test_nothing_calls_the_host(name: str):
    fn, args, _ = arguments()[name]
    assert "callback" not in str(jax.make_jaxpr(fn)(*args))
    assert "callback" not in jax.jit(fn).lower(*args).as_text()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_shapes_without_values(name: str):
    fn, args, shapes = arguments()[name]
    assert [x.shape for x in jax.tree.leaves(jax.eval_shape(fn, *args))] == shapes


@pytest.mark.parametrize("remainder", REMAINDERS)
def test_forward_mode_equals_reverse_mode(remainder: str):
    z, losses, prior = small()
    direction = jnp.cos(jnp.arange(z.size, dtype=jnp.float32)).reshape(z.shape)
    fn = lambda a: total(a, losses, prior, remainder=remainder)  # noqa: E731
    value, slope = jax.jvp(fn, (z,), (direction,))
    want, grad = jax.value_and_grad(fn)(z)
    close(value, want)
    close(slope, (grad * direction).sum())
    close(jax.jacfwd(fn)(z), grad)


def test_vmap_of_grad_gives_each_example_its_own_gradient():
    z, losses, prior = small()
    mapped = jax.jit(jax.vmap(jax.grad(total), in_axes=(1, 1, None), out_axes=1))(z, losses, prior)
    close(mapped, jax.grad(lambda a: 4 * total(a, losses, prior))(z))


def test_vmap_of_drawn_steps():
    lam, ids = jax.nn.sigmoid(small(batch=(3, 4))[0]), jnp.arange(12).reshape(3, 4)
    mapped = jax.vmap(lambda a, b: pj.draw_steps(a, 5, b), in_axes=(1, 0))(lam, ids)
    np.testing.assert_array_equal(mapped, pj.draw_steps(lam, 5, ids))


@pytest.mark.parametrize("remainder", REMAINDERS)
@pytest.mark.parametrize("corner", CORNERS)
def test_second_derivatives_are_finite_at_saturation(corner: float, remainder: str):
    _, losses, prior = small(steps=4, batch=(2,))
    z = jnp.full((4, 2), corner).at[1, 1].set(-corner)
    fn = lambda a: total(a, losses, prior, remainder=remainder)  # noqa: E731
    assert jnp.isfinite(jax.hessian(fn)(z)).all()
    assert jnp.isfinite(jax.jacrev(jax.grad(fn))(z)).all()


@pytest.mark.parametrize("op_by_op", [False, True])
@pytest.mark.parametrize("remainder", REMAINDERS)
def test_debug_nans_finds_nothing_at_saturation(remainder: str, op_by_op: bool):
    z = jnp.asarray(LOGITS["saturated"](), jnp.float32)
    losses, prior = jnp.ones_like(z), pj.geometric_log_prior(0.3, 3)
    lengths = jnp.arange(z.shape[1]) % 3 + 1
    with jax.debug_nans(True), jax.disable_jit(op_by_op):
        for cut in (None, lengths):
            value, grad = jax.value_and_grad(lambda a: total(a, losses, prior, remainder=remainder, lengths=cut))(z)  # noqa: B023
            assert jnp.isfinite(value)
            assert jnp.isfinite(grad).all()


def test_a_training_loop_inside_scan():
    """Halting, loss, gradient, clipping, Adam and sampling with everything traced, against the same loop in Python."""
    z, losses, prior = small()
    ids = jnp.arange(4)

    def update(carry, step, beta=BETA):
        param, m, v = carry
        value, grad = jax.value_and_grad(lambda a: total(a, losses, prior, remainder="normalize", beta=beta))(param)
        grads, _ = pj.clip_by_global_norm({"z": grad}, max_norm=0.1)
        steps = pj.draw_steps(jax.nn.sigmoid(param), 3, ids)
        lengths = pj.halting_lengths(param, epsilon=0.05)
        new = pj.adam_update(param, grads["z"], m, v, step=step, learning_rate=0.1 / step.astype(jnp.float32))
        return tuple(new), (value, steps, lengths)

    start = (z, jnp.zeros_like(z), jnp.zeros_like(z))
    numbers = jnp.arange(1, 6)
    last, (values, steps, lengths) = jax.jit(lambda s, n: jax.lax.scan(update, s, n))(start, numbers)
    carry, seen = start, []
    for number in numbers:
        carry, out = update(carry, number)
        seen.append(out)
    close(last[0], carry[0], rtol=1e-4, atol=1e-6)
    close(values, jnp.stack([out[0] for out in seen]))
    np.testing.assert_array_equal(steps, jnp.stack([out[1] for out in seen]))
    np.testing.assert_array_equal(lengths, jnp.stack([out[2] for out in seen]))


def test_traced_scalars_equal_python_numbers():
    z, losses, prior = small()
    matrix = jnp.arange(6.0).reshape(3, 2) - 2
    traced = jax.jit(lambda b: total(z, losses, prior, beta=b))(0.3)
    close(traced, total(z, losses, prior, beta=0.3))
    close(
        jax.grad(lambda b: total(z, losses, prior, beta=b))(0.3),
        pj.ponder_loss(pj.log_halting(z), losses, prior, beta=1.0).loss_reg,
    )
    for update, arrays in ((pj.adam_update, (matrix, matrix, matrix, matrix**2)), (pj.muon_update, (matrix,) * 3)):
        fn = jax.jit(lambda s, r, update=update, arrays=arrays: update(*arrays, step=s, learning_rate=r))
        for step in (1, 2, 1000):
            for got, want in zip(fn(step, 0.1), update(*arrays, step=step, learning_rate=0.1), strict=True):
                close(got, want, rtol=1e-5, atol=1e-6)


def test_values_alone_compile_nothing_anew():
    """A Python side effect counts the traces."""
    _, losses, prior = small()
    traces = []

    @jitted
    def eager(z, *, beta):
        traces.append("eager")
        return total(z, losses, prior, beta=beta)

    @jax.jit
    def whole(z, beta, step, rate):
        traces.append("jit")
        value, grad = jax.value_and_grad(lambda a: total(a, losses, prior, beta=beta))(z)
        return value, pj.adam_update(z, grad, grad, grad * grad, step=step, learning_rate=rate)

    for seed in range(4):
        z, number = small(seed)[0], 0.1 + seed
        eager(z, beta=jnp.float32(number))
        whole(z, number, seed + 1, number)
    assert sorted(traces) == ["eager", "jit"]


def test_a_changing_beta_compiles_nothing_anew(monkeypatch: pytest.MonkeyPatch):
    """β as a Python number that a schedule changes at every update, outside of anybody's jit."""
    z, losses, prior = small(batch=(7,))  # a shape of its own, which nothing was compiled for
    log_p, traces = pj.log_halting(z), []
    original = ponder_jax.losses.expected_loss

    def counted(*args):
        traces.append(1)
        return original(*args)

    monkeypatch.setattr(ponder_jax.losses, "expected_loss", counted)
    for beta in (0.1, 0.2, 0.3):
        pj.ponder_loss(log_p, losses, prior, beta=beta)
    assert len(traces) == 1


FLOAT64 = """
import sys
sys.path.insert(0, "tests")
import jax, jax.numpy as jnp
from test_backend_jax import arguments, FUNCTIONS, pj
for width in ("float64", "float32"):
    for name in FUNCTIONS:
        fn, args, _ = arguments(jnp.dtype(width))[name]
        results = [x for made in (fn, jax.jit(fn)) for x in jax.tree.leaves(made(*args))]
        found = {str(x.dtype) for x in results if jnp.issubdtype(x.dtype, jnp.floating)}
        expected = {"float32"} if name == "halting_uniforms" else {width}
        assert found <= expected, (name, width, found)
    for prior in (pj.geometric_log_prior(0.3, 5, dtype=width), pj.poisson_log_prior(2.0, 5, dtype=width)):
        assert str(prior.dtype) == width
print("done")
"""


def in_a_process_with_float64(code: str) -> subprocess.CompletedProcess:
    path = os.pathsep.join(map(str, (ROOT, ROOT / "backends" / "jax")))
    env = os.environ | {"JAX_ENABLE_X64": "1", "PYTHONPATH": path}
    return subprocess.run([sys.executable, "-c", code], env=env, cwd=ROOT, capture_output=True, text=True)


def test_float64_where_the_process_has_it():
    done = in_a_process_with_float64(FLOAT64)
    assert done.stdout.strip() == "done", done.stderr


BAD = {
    "a list": [[0.0, 0.0]] * 3,
    "a number": 0.5,
    "integers": np.zeros((3, 2), np.int32),
    "booleans": np.zeros(3, bool),
}


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
@pytest.mark.parametrize(
    ("function", "argument"),
    [
        ("log_halting", "halt_logits"),
        ("expected_steps", "log_p"),
        ("weighted_mean", "values"),
        ("act_halting", "lambdas"),
    ],
)
def test_what_is_no_float_array_is_refused(function: str, argument: str, bad):
    with pytest.raises(ValueError, match=f"^{argument} must"):
        getattr(pj, function)(bad)


@pytest.mark.parametrize("remainder", REMAINDERS)
def test_a_nan_logit_changes_no_other_example(remainder: str):
    z, losses, prior = small(batch=(6,))
    others = jnp.array([0, 1, 3, 4, 5])

    @jax.jit
    def everything(logits):
        log_p = pj.log_halting(logits, remainder=remainder)
        parts = pj.ponder_loss(log_p, losses, prior, beta=BETA)
        drawn = pj.draw_steps(jax.nn.sigmoid(logits), 1, jnp.arange(6))
        return log_p, parts.example_rec, parts.example_reg, drawn, pj.halting_lengths(logits, epsilon=0.05)

    grad = jax.jit(jax.grad(lambda a: sum(x.sum() for x in everything(a)[1:3])))
    bad = z.at[1, 2].set(jnp.nan)
    assert jnp.isnan(everything(bad)[0][:, 2]).any()
    for clean, beside in zip((*everything(z), grad(z)), (*everything(bad), grad(bad)), strict=True):
        np.testing.assert_array_equal(clean[..., others], beside[..., others])


ELEMENTS = st.floats(-30, 30, width=32) | st.sampled_from(CORNERS)


@settings(max_examples=150)
@given(st.data())
def test_equals_the_reference(data):
    steps, batch = data.draw(st.sampled_from(((1, (3,)), (2, ()), (4, (3,)), (6, (2, 2)))))
    z = data.draw(hnp.arrays(np.float32, (steps, *batch), elements=ELEMENTS)).astype(np.float64)
    lengths = data.draw(st.none() | hnp.arrays(np.int32, batch, elements=st.integers(1, steps)))
    remainder = data.draw(st.sampled_from(REMAINDERS))
    got = pj.log_halting(pj.from_numpy(z, "float32"), remainder=remainder, lengths=lengths)
    want = ponder_ref.log_halting(z, remainder=remainder, lengths=lengths)
    given_ = {"z": z, "lengths": lengths}
    assert_close("H1", "log_p", np.asarray(got), want, kind="log_p", dtype="float32", arguments=given_)
