"""The structure of the random chains."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from icrl_envs import boyan_chain, boyan_chains, loop_chain, loop_chains

CHAINS = {"boyan": boyan_chain, "loop": loop_chain}
both = pytest.mark.parametrize("chain", CHAINS.values(), ids=CHAINS)


@settings(deadline=None, max_examples=30)
@given(num_states=st.integers(2, 25), task_seed=st.integers(0, 2**32))
def test_boyan_moves_one_or_two_ahead_and_restarts_at_the_start_distribution(num_states, task_seed):
    process = boyan_chain(num_states=num_states, task_seed=task_seed)
    P, last = process.transition_matrix, num_states - 1
    for s in range(last - 1):
        assert set(np.flatnonzero(P[s])) == {s + 1, s + 2}
    assert P[last - 1, last] == 1.0
    np.testing.assert_array_equal(P[last], process.start)
    assert (process.start > 0).all()


@settings(deadline=None, max_examples=30)
@given(num_states=st.integers(2, 12), sparsity=st.floats(0.0, 1.0), task_seed=st.integers(0, 2**32))
def test_loop_chain_is_ergodic_at_any_sparsity(num_states, sparsity, task_seed):
    P = loop_chain(num_states=num_states, sparsity=sparsity, task_seed=task_seed).transition_matrix
    reachable = np.eye(num_states, dtype=int)
    for _ in range((num_states - 1) ** 2 + 1):  # a primitive matrix has a positive power within this many steps
        reachable = (reachable @ (P > 0) > 0).astype(int)
    assert reachable.all()
    others = num_states**2 - num_states - 1
    assert np.count_nonzero(P) == num_states + 1 + others - round(sparsity * others)


@both
def test_representable_values_are_linear_in_the_features(chain):
    process = chain(num_states=12, features="random", num_features=3, representable=True)
    assert process.features.shape == (12, 3)
    weights, _, _, _ = np.linalg.lstsq(process.features, process.values())
    np.testing.assert_allclose(process.features @ weights, process.values(), atol=1e-12)
    other = chain(num_states=12, features="random", num_features=3)
    weights, _, _, _ = np.linalg.lstsq(other.features, other.values())
    assert np.abs(other.features @ weights - other.values()).max() > 0.1


@both
def test_each_part_of_a_task_has_its_own_stream(chain):
    plain = chain(task_seed=4)
    changed = chain(task_seed=4, features="random", representable=True, gamma=0.5)
    np.testing.assert_array_equal(plain.transition_matrix, changed.transition_matrix)
    np.testing.assert_array_equal(plain.start, changed.start)
    assert not np.array_equal(plain.transition_matrix, chain(task_seed=5).transition_matrix)


@both
def test_features(chain):
    np.testing.assert_array_equal(chain(num_states=7).features, np.eye(7))
    np.testing.assert_array_equal(chain(num_states=7, num_features=7).features, np.eye(7))
    random = chain(num_states=7, features="random").features
    assert random.shape == (7, 4)
    assert np.abs(random).max() <= 1
    assert np.abs(chain(num_states=7).rewards).max() <= 1


@both
@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"num_states": 0}, ValueError, "num_states must be an integer ≥ 2; got 0"),
        ({"num_states": 1}, ValueError, "num_states must be an integer ≥ 2; got 1"),
        ({"num_states": 10**9}, ValueError, r"must be at most 20,000 .* got 1,000,000,000\..* 8,000,000,000 GB"),
        ({"num_states": 2.5}, TypeError, "num_states .* of type float"),
        ({"gamma": 1.0}, ValueError, "gamma must be"),
        ({"features": "onehot"}, ValueError, r"features must be one of 'one_hot', 'random'.* Did you mean 'one_hot'\?"),
        ({"num_features": 3}, ValueError, "num_features must be None or num_states=10 .* use features='random'"),
        ({"features": "random", "num_features": 0}, ValueError, r"num_features must be an integer in \[1, "),
        ({"features": "random", "num_features": 10**12}, ValueError, r"num_features must be an integer in \[1, "),
        ({"representable": 1}, TypeError, "representable must be True or False"),
        ({"task_seed": -3}, ValueError, "task_seed"),
    ],
)
def test_bad_arguments_are_named(chain, arguments, error, message):
    with pytest.raises(error, match=message):
        chain(**arguments)


@pytest.mark.parametrize("sparsity", [-0.1, 1.1, float("nan")])
def test_sparsity_is_a_share(sparsity):
    with pytest.raises(ValueError, match=r"sparsity must be a finite number in \[0, 1\]"):
        loop_chain(sparsity=sparsity)


@pytest.mark.parametrize("draw", [boyan_chains, loop_chains])
@pytest.mark.parametrize("arguments", [{}, {"features": "random", "num_features": 2, "representable": True}])
def test_chains_at_once_are_processes_with_the_values_they_state(draw, arguments):
    chains = draw(5, np.random.default_rng(0), num_states=4, gamma=0.8, **arguments)
    assert len(chains) == 5
    for i in range(5):
        process = chains[i]
        np.testing.assert_allclose(chains.values()[i], process.values(), atol=1e-12)
        mu, P, r, h = (
            a[i]
            for a in (
                chains.stationary_distributions(),
                chains.transition_matrix,
                chains.rewards,
                chains.differential_values(),
            )
        )
        np.testing.assert_allclose(mu, process.stationary_distribution(), atol=1e-12)
        np.testing.assert_allclose(h, r - mu @ r + P @ h, atol=1e-12)
        assert mu @ h == pytest.approx(0.0, abs=1e-12)
    assert len(np.unique(chains.transition_matrix, axis=0)) == 5
    paths = chains.repeat(400).sample_paths(30, np.random.default_rng(1))
    for i, P in enumerate(chains.transition_matrix):
        own = paths[400 * i : 400 * (i + 1)]
        counts = np.zeros((4, 4))
        np.add.at(counts, (own[:, :-1], own[:, 1:]), 1)
        visits = counts.sum(1, keepdims=True)
        assert (np.abs(counts - visits * P) <= 5 * np.sqrt(visits * P * (1 - P)) + 1e-9).all()


@both
def test_one_law_draws_one_chain_and_many(chain):
    many = {boyan_chain: boyan_chains, loop_chain: loop_chains}[chain]
    single = [chain(num_states=6, task_seed=k).transition_matrix for k in range(300)]
    P = many(300, np.random.default_rng(0), num_states=6).transition_matrix
    np.testing.assert_allclose(P.mean(0), np.mean(single, axis=0), atol=0.08)
    np.testing.assert_allclose(P.std(0), np.std(single, axis=0), atol=0.06)
    assert ((P > 0).sum((1, 2)) == (single[0] > 0).sum()).all()


def test_a_count_below_one_is_refused():
    with pytest.raises(ValueError, match="count must be an integer ≥ 1"):
        boyan_chains(0, np.random.default_rng(0))
