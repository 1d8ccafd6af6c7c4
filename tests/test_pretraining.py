"""Pretraining: tasks, losses against plain loops, resuming, seeds, and the construction that emerges."""

import dataclasses
import json
import math

import numpy as np
import pytest
import torch

from icrl_agents import InContextTransformer, PretrainConfig, pretrain
from icrl_agents.compressed import state_values
from icrl_agents.pretraining import losses
from icrl_agents.pretraining.batches import batches, evaluation_batch
from icrl_agents.pretraining.progress import STATE
from icrl_agents.pretraining.tasks import draw_chains
from icrl_agents.studies.pretrain.config import PRESETS
from icrl_agents.value_function import DivergenceError

TINY = {"num_states": 4, "context_length": 12, "num_layers": 3, "tasks": 6, "evaluation_tasks": 4, "evaluate_every": 5}
FORMS = {
    "shift": {},
    "dual, sequential": {"form": "dual_head", "tied": False},
    "linear, random features": {"form": "linear", "features": "random", "num_features": 3},
    "full": {"parametrisation": "full"},
    "full, two heads, sequential": {"parametrisation": "full", "form": "dual_head", "tied": False},
    "loop chains, contexts and updates": {"chain": "loop", "contexts": 2, "updates": 3, "tasks": 3},
    "random depths": {"min_layers": 1},
    "windows": {"windows": 5, "contexts": 2, "updates": 3, "tasks": 2},
    "average reward": {"form": "linear", "algorithm": "average_reward"},
    "float32": {"precision": "float32", "parametrisation": "full"},
}


def tiny(**changes):
    return PretrainConfig(**{**TINY, "initial_scale": 0.5, **changes})


def first_batch(config):
    return next(iter(batches(config)))


@pytest.mark.parametrize("chain", ["boyan", "loop"])
def test_chains_are_processes_with_the_values_they_state(chain):
    chains = draw_chains(tiny(chain=chain, num_features=7), 5, np.random.default_rng(0))
    for i in range(5):
        process = chains[i]
        np.testing.assert_allclose(chains.values()[i], process.values(), atol=1e-12)
        np.testing.assert_allclose(chains.stationary_distributions()[i], process.stationary_distribution(), atol=1e-12)
        assert (process.features.sum(1) == 1).all()
        assert np.linalg.matrix_rank(process.features) == 4
    assert len(np.unique(chains.transition_matrix, axis=0)) == 5
    assert len(np.unique(chains.features, axis=0)) == 5


def test_chains_have_the_law_of_the_environments():
    rng = np.random.default_rng(0)
    boyan = draw_chains(tiny(num_states=6), 2000, rng).transition_matrix
    steps = boyan[:, np.arange(4), np.arange(1, 5)]
    assert steps.mean() == pytest.approx(0.5, abs=0.02)
    assert steps.var() == pytest.approx(1 / 12, abs=0.005)
    np.testing.assert_allclose(boyan[:, np.arange(4), np.arange(2, 6)], 1 - steps)
    np.testing.assert_allclose(boyan[:, -1].mean(0), np.full(6, 1 / 6), atol=0.02)
    loop = draw_chains(tiny(num_states=6, chain="loop"), 50, rng).transition_matrix
    assert ((loop > 0).sum((1, 2)) == 36 - round(0.5 * (36 - 7))).all()  # half of the free edges are absent
    assert (loop[:, np.arange(6), (np.arange(6) + 1) % 6] > 0).all()


def test_representable_values_are_linear_in_the_features():
    chains = draw_chains(tiny(features="random", num_features=2, representable=True), 3, np.random.default_rng(0))
    for v, phi in zip(chains.values(), chains.features, strict=True):
        w, *_ = np.linalg.lstsq(phi, v, rcond=None)
        np.testing.assert_allclose(phi @ w, v, atol=1e-12)


def test_updates_of_one_draw_share_tasks_but_not_contexts():
    config = tiny(updates=2, tasks=3, contexts=2)
    first, second, third = (batch for _, batch in zip(range(3), batches(config), strict=False))
    assert torch.equal(first.values, second.values)
    assert torch.equal(first.values[0], first.values[1])
    assert not torch.equal(first.values, third.values)
    assert not torch.equal(first.contexts.path, second.contexts.path)
    again = next(iter(batches(config, 2)))
    assert torch.equal(again.contexts.path, third.contexts.path)
    assert torch.equal(first.contexts.path[:, -1], first.future[:, 0])


@pytest.mark.parametrize("changes", FORMS.values(), ids=FORMS)
def test_a_resumed_training_has_the_trace_of_an_uninterrupted_one(changes, tmp_path):
    whole = pretrain(tiny(steps=12, **changes))
    pretrain(tiny(steps=12, **changes), folder=tmp_path, until=7)
    resumed = pretrain(tiny(steps=12, **changes), folder=tmp_path)
    assert whole.losses.tolist() == resumed.losses.tolist()
    assert len(whole.losses) == 12
    for name, weight in whole.transformer.state_dict().items():
        assert torch.equal(weight, resumed.transformer.state_dict()[name])
    assert resumed.rows[-1].step == 12
    assert whole.losses.isfinite().all()
    assert [p.name for p in tmp_path.iterdir()] == [STATE]


def test_a_killed_training_goes_on_from_its_last_state(tmp_path, monkeypatch):
    config = tiny(steps=12)
    whole = pretrain(config)

    class KilledError(Exception):
        pass

    def failing(transformer, batch, calls=iter(range(100))):  # noqa: B008
        if next(calls) == 8:
            raise KilledError
        return losses.td_loss(transformer, batch)

    monkeypatch.setattr("icrl_agents.pretraining.loop.loss_of", lambda config: failing)
    with pytest.raises(KilledError):
        pretrain(config, folder=tmp_path, save_every=3)
    monkeypatch.undo()
    resumed = pretrain(config, folder=tmp_path)
    assert whole.losses.tolist() == resumed.losses.tolist()
    assert [vars(row).values() for row in whole.rows].__repr__() == [
        vars(row).values() for row in resumed.rows
    ].__repr__()


def test_seeds_decide_everything_and_global_states_nothing():
    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002
    before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    first = pretrain(tiny(steps=4))
    assert torch.equal(before[0], torch.get_rng_state())
    assert (before[1] == np.random.get_state()[1]).all()  # noqa: NPY002
    torch.manual_seed(1)
    assert pretrain(tiny(steps=4)).losses.tolist() == first.losses.tolist()
    assert pretrain(tiny(steps=4, seed=1)).losses.tolist() != first.losses.tolist()


def test_a_trained_transformer_is_a_frozen_evaluator_that_can_be_saved(tmp_path):
    result = pretrain(tiny(steps=3, features="random"))
    assert not any(parameter.requires_grad for parameter in result.transformer.parameters())
    batch = evaluation_batch(result.config)
    result.transformer.save_pretrained(tmp_path)
    loaded = InContextTransformer.from_pretrained(tmp_path)
    values = loaded.fit(batch.contexts.context)(batch.contexts.points)
    torch.testing.assert_close(values, state_values(result.transformer, batch.contexts), rtol=1e-10, atol=1e-12)


def test_cartpole_contexts_end_at_falls_and_train():
    config = PretrainConfig(chain="cartpole", num_layers=2, context_length=40, tasks=3, steps=2, evaluation_tasks=2)
    batch = first_batch(config)
    fell = batch.contexts.discounts == 0
    assert fell.any()
    assert not fell.all()
    assert batch.contexts.rewards[:, :-2].eq(1).all()
    for changes in ({}, {"loss": "mc"}, {"loss": "neu"}, {"form": "linear"}, {"parametrisation": "full"}):
        result = pretrain(dataclasses.replace(config, **changes))
        assert result.losses.isfinite().all()
        assert math.isnan(result.rows[-1].value_error)
        assert result.rows[-1].return_error > 0


def test_the_construction_emerges_in_a_small_training():
    result = pretrain(
        tiny(
            context_length=40, num_layers=15, steps=500, tasks=32, evaluate_every=250, initial_scale=0.02, num_states=5
        )
    )
    first, *_, last = result.rows
    assert last.has_td_signs
    assert last.diagonality > 1.5 * first.diagonality
    assert last.value_error < 0.25 * first.value_error
    assert last.attention_distance < 0.4 < first.attention_distance


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_signs_and_diagonality_of_the_quick_preset(seed):
    first, *_, last = pretrain(dataclasses.replace(PRESETS["boyan"], evaluate_every=3000, seed=seed)).rows
    assert last.has_td_signs
    assert last.diagonality > 3 * first.diagonality
    assert last.value_error < 0.06


WRONG = {
    "boyn": ({"chain": "boyn"}, "chain must be one of .* Did you mean 'boyan'"),
    "no steps": ({"steps": -1}, "steps must be an integer ≥ 0"),
    "gamma": ({"gamma": 1.0}, "gamma must be"),
    "gamma of float32": ({"gamma": 1 - 1e-10, "precision": "float32"}, "gamma: 0.9999999999 would be 1 in float32"),
    "learning rate": ({"learning_rate": 0.0}, "learning_rate must be"),
    "too few features": ({"num_features": 3}, r"num_features must be an integer in \[4, "),
    "too many features": ({"num_features": 10**9}, r"num_features must be an integer in \[4, 20000\]"),
    "too many one-hot states": ({"num_features": None, "num_states": 10**9}, r"num_states must be an integer in \[2, "),
    "full linear": ({"form": "linear", "parametrisation": "full"}, "parametrisation: 'full' is for softmax"),
    "value on cartpole": ({"chain": "cartpole", "loss": "value"}, "chain: 'cartpole' has no known value"),
    "features on cartpole": ({"chain": "cartpole", "num_features": 4}, "num_features: expected none"),
    "expectations": ({"loss": "mc", "expectations": True}, "expectations: expected loss 'td' or 'neu'"),
    "softmax residual gradient": ({"algorithm": "residual_gradient"}, "algorithm: 'residual_gradient' expects form"),
    "average returns": ({"form": "linear", "algorithm": "average_reward", "loss": "mc"}, "expects .* loss td or value"),
    "average cartpole": (
        {"form": "linear", "algorithm": "average_reward", "chain": "cartpole"},
        "'average_reward' expects a chain",
    ),
    "windows of returns": ({"windows": 3, "loss": "mc"}, "windows: expected the sampled loss 'td'"),
    "no window": ({"windows": 0}, "windows must be an integer ≥ 1"),
    "one task": ({"loss": "neu", "tasks": 1, "contexts": 64}, "tasks: expected an even number for loss 'neu'"),
    "a task in both halves": ({"loss": "neu", "tasks": 3, "contexts": 2}, "tasks: expected an even number"),
}


@pytest.mark.parametrize(("changes", "message"), WRONG.values(), ids=WRONG)
def test_wrong_configurations_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        tiny(**changes)


def test_divergence_names_the_step():
    with pytest.raises(DivergenceError, match="not finite at step"):
        pretrain(tiny(steps=50, learning_rate=1e9, max_norm=1e9, num_layers=30))


def test_folders_of_other_trainings_and_damaged_ones_are_refused(tmp_path):
    pretrain(tiny(steps=2), folder=tmp_path)
    with pytest.raises(ValueError, match="another configuration, whose seed is 0"):
        pretrain(tiny(steps=2, seed=1), folder=tmp_path)
    with pytest.raises(ValueError, match="whose steps is 2 and not 3"):
        pretrain(tiny(steps=3), folder=tmp_path)
    content = (tmp_path / STATE).read_bytes()
    (tmp_path / STATE).write_bytes(content[:-10])
    with pytest.raises(ValueError, match="not a whole state of training"):
        pretrain(tiny(steps=2), folder=tmp_path)


def test_a_state_of_training_with_any_changed_bit_is_refused(tmp_path):
    pretrain(tiny(steps=2), folder=tmp_path)
    content = (tmp_path / STATE).read_bytes()
    length = int.from_bytes(content[:8], "little")
    names = json.loads(content[8 : 8 + length])
    places = [7 + length + names[name]["data_offsets"][1] for name in names if name != "__metadata__"]
    for place in [*places, content.index(b"diagonality") + 17, *range(0, len(content), 97)]:
        changed = bytearray(content)
        changed[place] ^= 0x10
        (tmp_path / STATE).write_bytes(changed)
        with pytest.raises(ValueError, match="not a whole state of training"):
            pretrain(tiny(steps=2), folder=tmp_path)
