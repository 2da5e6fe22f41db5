"""Checks of a backend's Transformer, shared by the tests of both backends."""

from typing import Any

import numpy as np
import pytest
from masks import unpack_bits
from nets import make_net
from nets import make_trainer as trainer_of
from train_transformer import MAX_STEPS, MODEL, make_chunk, make_inputs, make_trainer

import ponder_ref
from ponder_ref.models._attention import dropped_share, with_masks
from ponder_ref.models._buckets import bucket_lengths
from ponder_ref.models._ut_act import ut_act
from ponder_ref.models.rnn import Rnn
from ponder_ref.models.transformer import Transformer
from ponder_ref.runtime.settings import Halting, Optimiser

WAYS: dict[str, dict[str, Any]] = {
    "ponder": {},
    "epsilon": {"epsilon": 0.3, "min_steps": 2},
    "act": {"method": "act", "act_epsilon": 0.3},
    "repeat": {"method": "repeat"},
    "once": {"method": "once"},
}
LAYERED = Transformer(**{**MODEL.__dict__, "layers": 2})


def parameters(model: Transformer) -> dict[str, np.ndarray]:
    """Initial parameters with halting logits that differ between steps and examples."""
    params = model.initial_parameters(2)
    return {**params, "halt.w": params["halt.w"] * 3, "halt.b": params["halt.b"] + 0.3}


def alone(model: Transformer, params: dict, words: np.ndarray, bits: np.ndarray | None, options: dict) -> Any:
    """One example without its padding by the reference: words `[L, tokens]`, bits `[steps, heads, L, ⌈L/8⌉]`."""
    real = words.any(-1)
    kept = None if bits is None else unpack_bits(bits, len(words))[:, None][..., real, :][..., real]
    given = words[real][None]

    def step(state):
        n = int(state["n"]) + 1
        mask = None if kept is None else kept[n - 1]
        rule = {"heads": model.heads, "kept": mask, "dropout": dropped_share(model)}
        h = ponder_ref.transformer_transition(params, given, state["h"], n, **rule)
        y_hat, z = ponder_ref.transformer_readout(params, h)
        return y_hat, {"h": h, "n": np.array(n)}, z

    start = {"h": ponder_ref.transformer_encode(params, given), "n": np.array(0)}
    return ponder_ref.ponder(step, None, start, max_steps=MAX_STEPS, **options)


def check_against_the_reference(backend: Any, way: str, model: Transformer = MODEL) -> None:
    """Predictions, logits, Nᵢ and the question's state of a batch of buckets, with dropout, in float32."""
    options = WAYS[way]
    params, inputs = parameters(model), with_masks(model, make_inputs(3), 5, 0, MAX_STEPS)
    given = {name: backend.from_numpy(x, x.dtype.name) for name, x in inputs.items()}
    out = make_net(f"ponder_{backend.NAME}", model, params, max_steps=MAX_STEPS, **options)(given)
    got = [backend.to_numpy(x) for x in (out.y_hat, out.halt_logits, out.lengths, out.state)]
    row, lengths = 0, set()
    for length in bucket_lengths(inputs):
        for k, words in enumerate(inputs[f"words.{length}"]):
            want = alone(model, params, words, inputs[f"dropout.{length}"][:, k], options)
            n = int(want.lengths[0])
            lengths.add(n)
            assert got[2][row] == n, (length, k)
            np.testing.assert_allclose(got[0][:n, row], want.y_hat[:n, 0], atol=2e-5)
            np.testing.assert_allclose(got[1][:n, row], want.halt_logits[:n, 0], atol=2e-5)
            np.testing.assert_allclose(got[3][row], want.state["h"][0, -1], atol=2e-5)
            row += 1
    assert row == len(got[2])
    assert len(lengths) > 1 or way not in ("epsilon", "act"), "no example of this test leaves early"


def check_rows_that_halt(backend: Any) -> None:
    """ut-act: the answer, the cost and Nᵢ of every example against the reference, with dropout, in float32."""
    epsilon = 0.3
    params, inputs = parameters(MODEL), with_masks(MODEL, make_inputs(3), 5, 0, MAX_STEPS)
    given = {name: backend.from_numpy(x, x.dtype.name) for name, x in inputs.items()}
    options = {"max_steps": MAX_STEPS, "method": "ut-act", "act_epsilon": epsilon}
    out = make_net(f"ponder_{backend.NAME}", MODEL, params, **options)(given)
    y_hat, lengths, cost = (backend.to_numpy(x) for x in (out.y_hat, out.lengths, out.act.remainder))
    judged = ponder_ref.act_halting(1 / (1 + np.exp(-backend.to_numpy(out.halt_logits).clip(-50, 50))))
    assert np.array_equal(judged.steps, lengths)
    row, seen = 0, []
    for length in bucket_lengths(inputs):
        for words, bits in zip(inputs[f"words.{length}"], np.moveaxis(inputs[f"dropout.{length}"], 1, 0), strict=True):
            real = words.any(-1)
            kept = unpack_bits(bits, length)[..., real, :][..., real]
            rule = {"heads": MODEL.heads, "max_steps": MAX_STEPS, "act_epsilon": epsilon, "kept": kept}
            want = ut_act(params, words[real], **rule, dropout=dropped_share(MODEL))
            seen.append(want.steps)
            assert lengths[row] == want.steps.max()
            np.testing.assert_allclose(y_hat[:, row], np.tile(want.y_hat, (len(y_hat), 1)), atol=2e-5)
            np.testing.assert_allclose(cost[row], want.cost, atol=2e-5)
            row += 1
    assert any(steps.min() < steps.max() for steps in seen) and len({int(steps.max()) for steps in seen}) > 1


def check_padding(package: str) -> None:
    """Longer buckets change nothing, to rounding, neither answers nor what is learned."""
    model = Transformer(**{**MODEL.__dict__, "dropout": 0.0})
    chunk = make_chunk(0, 1, model)
    wider = {
        f"words.{name.split('.')[1]}": x if name == "words.9" else np.pad(x, ((0, 0), (0, 0), (3, 0), (0, 0)))
        for name, x in chunk.inputs.items()
    }
    wider = {f"words.{x.shape[2]}": x for x in wider.values()}
    ends = []
    for inputs in (chunk.inputs, wider):
        trainer = make_trainer(package, "ponder-muon", "float32", model)
        state, metrics = trainer.train_steps(trainer.init(parameters(model)), chunk._replace(inputs=inputs))
        ends.append(({k: v for k, v in trainer.dump(state).items() if k[:2] == "m."}, metrics["loss"]))
    assert set(wider) == {"words.6", "words.9"}
    np.testing.assert_allclose(ends[0][1], ends[1][1], rtol=1e-5)
    for name, value in ends[0][0].items():
        np.testing.assert_allclose(ends[1][0][name], value, atol=1e-6, err_msg=name)


def check_refusals(package: str) -> None:
    """Inputs that do not fit get a sentence that names them."""
    trainer = trainer_of(package, MODEL, Halting(max_steps=MAX_STEPS), Optimiser())
    state, good = trainer.init(MODEL.initial_parameters(0)), make_inputs(0)
    bits = with_masks(MODEL, good, 0, 0, MAX_STEPS - 1)
    for inputs, named in (
        ({}, "words.L"),
        ({**good, "words.3": good["words.3"][:, :2]}, "words.3"),
        ({**good, "words.10": np.ones((1, 10, 3), np.int16)}, "words.10"),
        ({**good, "targets": good["words.3"]}, "targets"),
        (bits, "dropout.3"),
        ({**good, "words.3": good["words.3"].astype(np.float32)}, "words.3"),
    ):
        with pytest.raises(ValueError, match=named):
            trainer.unroll(state, inputs)
    with pytest.raises(ValueError, match="method must be one of"):
        trainer_of(package, Rnn(inputs=3, hidden=2), Halting(method="ut-act"), Optimiser())
