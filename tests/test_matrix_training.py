"""Pretraining of the transfer matrix: its loss by the equations, its contexts, and what it learns."""

import numpy as np
import pytest
import torch

from icrl_agents.context import Context
from icrl_agents.episode import Episode
from icrl_agents.studies.matrix.config import MatrixConfig
from icrl_agents.studies.matrix.training import (
    drawn,
    linear_trainable,
    pretrained,
    semi_gradient_loss,
    softmax_trainable,
    stretch,
    train,
)


def walks(count=8, steps=40):
    """Walks in the plane whose reward depends on the first coordinate alone, which has the smaller scale."""
    rng = np.random.default_rng(3)
    paths = rng.normal(size=(count, 1, 2)) + 0.3 * rng.normal(size=(count, steps + 1, 2)).cumsum(1)
    return [Episode(path * [0.3, 1.0], np.tanh(2 * path[:-1, 0])) for path in paths]


def toy(**changes):
    settings = {"updates": 40, "batch_episodes": 3, "window": 30, "gamma": 0.5, "depth": 8, "min_depth": 3}
    return MatrixConfig(**{**settings, "tail": 10, "steps": 40, **changes})


def test_training_finds_the_dimension_that_matters_and_lowers_the_held_out_loss():
    config, episodes = toy(), walks(14)
    found = pretrained(config, episodes[:8], seed=0)
    context, queries = (Context.from_episodes(part, 0.5) for part in (episodes[:4], episodes[8:]))
    scales = found["softmax"].state_dict()["blocks.0.attention.kernel.length_scale"]
    assert scales[0] < 0.5 * scales[1]
    softmax = softmax_trainable(config, 2, np.random.default_rng([0, 0]))
    linear = linear_trainable(config, 2)
    for name, before in (("softmax", softmax), ("linear", linear)):
        start = before.transformer
        start.load_state_dict({n: w.detach() for n, w in before.weights().items()}, strict=False)
        losses = [float(semi_gradient_loss(model(context, queries.points), queries)) for model in (start, found[name])]
        assert losses[1] < losses[0]
    assert not any(weight.requires_grad for model in found.values() for weight in model.parameters())
    query = found["linear"].state_dict()["blocks.0.Q"][0]
    torch.testing.assert_close(query[:2, :2], query[:2, :2].mT)
    assert bool((torch.linalg.eigvalsh(-query[:2, :2]) > 0).all())


def test_the_loss_is_semi_gradient_td():
    rng = np.random.default_rng(0)
    queries = Context.from_episodes([Episode(rng.normal(size=(4, 1)), rng.normal(size=3)) for _ in range(2)], 0.9)
    values = torch.tensor(rng.normal(size=8), requires_grad=True)
    loss = semi_gradient_loss(values, queries)
    loss.backward()
    expected, gradient = 0.0, np.zeros(8)
    v = values.detach().numpy()
    for k in range(6):
        following = int(queries.successors[k])
        error = float(queries.rewards[k]) + 0.9 * v[following] - v[k]
        expected += error**2 / 6
        gradient[k] -= 2 * error / 6
    assert float(loss.detach()) == pytest.approx(expected)
    assert values.grad is not None
    np.testing.assert_allclose(values.grad.numpy(), gradient)


def test_a_context_and_its_queries_are_stretches_of_different_trajectories():
    episodes = [Episode(np.full((41, 1), float(i)) + np.arange(41)[:, None] / 100, np.zeros(40)) for i in range(8)]
    context, queries = drawn(toy(), episodes, np.random.default_rng(0))
    parts = [set(part.states[:, 0].floor().tolist()) for part in (context, queries)]
    assert [len(part) for part in parts] == [3, 3]
    assert not parts[0] & parts[1]
    assert len(context) == len(queries) == 90
    starts = set()
    for seed in range(40):
        part = stretch(episodes[0], 38, np.random.default_rng(seed))
        assert part.observations.shape == (39, 1)
        starts.add(round(float(part.observations[0, 0]) * 100))
    assert starts == {0, 1, 2}


def test_free_value_weights_start_without_a_sign_and_the_seed_decides_all():
    config = toy(value_weights="free", updates=2)
    first, again, other = (pretrained(config, walks(), seed)["softmax"].state_dict() for seed in (0, 0, 1))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert float((first["blocks.0.value_weights"] - other["blocks.0.value_weights"]).abs().min()) > 1e-3


def test_weights_that_are_no_numbers_name_what_to_change():
    trainable = softmax_trainable(toy(), 2, np.random.default_rng(0))._replace(learning_rate=1e300)
    with pytest.raises(ValueError, match="learning_rate: training diverges at update 1"):
        train(toy(), trainable, walks(), np.random.default_rng(0))


def test_a_loss_that_is_not_finite_names_what_to_change():
    episodes = [Episode(episode.observations, 3e38 * episode.rewards) for episode in walks()]
    with pytest.raises(ValueError, match="learning_rate: training diverges at update 0"):
        train(toy(), linear_trainable(toy(), 2), episodes, np.random.default_rng(0))
