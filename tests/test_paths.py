"""Paths of many chains at once, and what is made of them."""

import numpy as np
import pytest
import torch

from icrl_agents.compressed import CompressedContexts, sample_paths
from icrl_envs.batches import RKHSBatch
from icrl_envs.cartpole import random_cartpole
from icrl_envs.cartpole_batch import CartPoleBatch
from icrl_envs.rkhs import RKHSProcess


def test_paths_follow_the_chain_and_are_reproducible():
    P = np.array([[0.0, 1.0, 0.0], [0.25, 0.0, 0.75], [1.0, 0.0, 0.0]])
    cumulative, start = P.cumsum(-1)[None], np.tile([0.0, 1.0, 1.0], (500, 1))
    paths = sample_paths(cumulative, start, 20, np.random.default_rng(0))
    assert paths.shape == (500, 21)
    assert (paths[:, 0] == 1).all()
    assert (P[paths[:, :-1], paths[:, 1:]] > 0).all()
    from_one = paths[:, 1:][paths[:, :-1] == 1]
    assert (from_one == 2).mean() == pytest.approx(0.75, abs=0.03)
    assert (paths == sample_paths(cumulative, start, 20, np.random.default_rng(0))).all()


@pytest.mark.parametrize(
    ("transitions", "start", "message"),
    [
        ([[[0.5, 0.5], [0.5, 0.5]]], [[0.0, 1.0]], "cumulative_transitions must have rows that grow to 1"),
        ([[[0.5, 1.0], [0.5, 1.0]]], [[0.5, 0.5]], "cumulative_start must have rows that grow to 1"),
        ([[[0.5, 1.0], [0.5, 1.0]]], [[0.0, 0.5, 1.0]], "cumulative_transitions must have shape"),
    ],
)
def test_probabilities_in_place_of_cumulative_ones_are_refused(transitions, start, message):
    with pytest.raises(ValueError, match=message):
        sample_paths(np.array(transitions), np.array(start), 5, np.random.default_rng(0))


def test_single_precision_counts_beyond_the_whole_numbers_that_it_holds():
    n, extra = 2**24 + 8, 2**20
    path = torch.zeros(1, n + extra + 1, dtype=torch.int64)
    path[0, 1 : 2 * extra : 2] = 1
    gamma = torch.full((1, n + extra), 0.5)
    contexts = CompressedContexts(torch.tensor([[[0.0], [1.0]]]), torch.ones(1, 2), path, gamma)
    assert contexts.counts.tolist() == [[n, extra]]
    assert contexts.routing.sum(-1).tolist() == [[0.5, 0.5]]


@pytest.mark.parametrize("count", [1, 4])
def test_states_of_another_number_of_processes_are_refused_in_a_step(count):
    rng = np.random.default_rng(0)
    for process, kind in (
        (RKHSProcess, RKHSBatch),
        (random_cartpole, CartPoleBatch),
    ):
        batch = kind([process(task_seed=seed) for seed in range(3)])
        states = batch.sample_start(rng)
        with pytest.raises(ValueError, match="states must"):
            batch.sample_step(np.resize(states, (count, *states.shape[1:])), rng)
