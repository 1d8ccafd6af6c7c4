import numpy as np
import pytest
import torch
from gymnasium import spaces

from icrl_agents.collection.recorder import flattening
from icrl_agents.context import Context
from icrl_agents.control.rollout import Rollout
from icrl_agents.episode import Episode

NAN, INF = float("nan"), float("inf")


def trajectory(length, dim=2):
    rng = np.random.default_rng(0)
    return Episode(rng.normal(size=(length + 1, dim)), rng.normal(size=length))


GOOD = {"states": np.zeros((3, 2)), "rewards": np.zeros(3), "discounts": np.ones(3), "next_states": np.ones((3, 2))}


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"states": np.zeros(3)}, ValueError, r"states: expected shape \(n, d\) .* got \(3,\)"),
        ({"states": np.zeros((3, 0))}, ValueError, r"with d ≥ 1, got \(3, 0\)"),
        (
            {"states": np.zeros((0, 3, 2))},
            ValueError,
            r"states: expected one context at least in the batch, got shape \(0, 3, 2\)",
        ),
        ({"states": np.zeros((3, 2), dtype=int)}, TypeError, r"states: expected float32 or float64, got torch.int64"),
        ({"states": np.zeros((3, 2), dtype=np.float16)}, TypeError, r"got torch.float16; convert it first"),
        ({"states": np.zeros((3, 2), dtype=complex)}, TypeError, r"got torch.complex128"),
        ({"states": [[1.0, 2.0], [1.0]]}, TypeError, r"states: expected a rectangular array of numbers, got list"),
        ({"states": None}, TypeError, r"states: expected a rectangular array of numbers, got NoneType"),
        (
            {"rewards": np.zeros((3, 1))},
            ValueError,
            r"rewards: expected shape \(3,\) to match the states, got \(3, 1\)",
        ),
        ({"discounts": 0.9}, ValueError, r"discounts: expected shape \(3,\)"),
        ({"discounts": [0.5, 1.5, 0.5]}, ValueError, r"discounts: expected every γ in \[0, 1\], got 1.5"),
        ({"discounts": [0.5, NAN, 0.5]}, ValueError, r"discounts: expected every γ in \[0, 1\], got nan"),
        ({"discounts": [True, True, False]}, TypeError, r"discounts: expected numbers in \[0, 1\], got booleans"),
        ({"discounts": np.zeros(3, bool)}, TypeError, r"discounts: expected numbers in \[0, 1\], got booleans"),
        ({"next_states": np.zeros((2, 2))}, ValueError, r"next_states: expected shape \(3, 2\)"),
        ({"rewards": [0.0, INF, 0.0]}, ValueError, r"rewards: expected finite numbers, got inf at index \(1,\)"),
        ({"next_states": np.full((3, 2), NAN)}, ValueError, r"next_states: .* \(of a transition with γ > 0\), got nan"),
        ({"mask": [1, 1, 0]}, TypeError, r"mask: expected booleans, got torch.int64"),
        ({"mask": [True, False]}, ValueError, r"mask: expected shape \(3,\)"),
        ({"contiguous": [True, False, False]}, ValueError, r"contiguous: True where next_states\[k\] differs"),
    ],
)
def test_a_bad_array_is_named(change, error, message):
    with pytest.raises(error, match=message):
        Context(**(GOOD | change))


@pytest.mark.parametrize(
    ("episode", "error", "message"),
    [
        (Episode(np.zeros((3, 2)), np.zeros(3)), ValueError, r"episode 1: expected one observation more .* got 3 .* 3"),
        (
            Episode(np.zeros((3, 1)), np.zeros(2)),
            ValueError,
            r"episode 1: expected observations \(T\+1, 2\) as in epis",
        ),
        (Episode(np.zeros(3), np.zeros(2)), ValueError, r"episode 1: expected observations \(T\+1, d\) and rewards"),
        (Episode(np.float64(0), np.zeros(1)), ValueError, r"episode 1: .* got \(\) and \(1,\)"),
        (Episode(np.zeros((3, 2), dtype=int), np.zeros(2)), TypeError, r"episode 1, observations: expected float32"),
        (Episode(np.array([[None, 1.0]] * 3), np.zeros(2)), TypeError, r"episode 1, observations: .* got ndarray"),
        (
            Episode(np.zeros((3, 2)), np.zeros(2, complex)),
            TypeError,
            r"episode 1, rewards: expected float32 or float64",
        ),
        (Episode(np.array([[0, 0], [0, NAN], [0, 0]]), np.zeros(2)), ValueError, r"episode 1, step 1: .* observation"),
        (Episode(np.array([[0, 0], [0, 0], [INF, 0]]), np.zeros(2)), ValueError, r"episode 1, step 2: .* got \[inf, 0"),
        (Episode(np.zeros((3, 2)), np.array([0.0, NAN])), ValueError, r"episode 1, step 1: expected a finite reward"),
        ("two", TypeError, r"episodes: expected Episode objects, got str at index 1"),
    ],
)
def test_a_bad_episode_is_named(episode, error, message):
    with pytest.raises(error, match=message):
        Context.from_episodes([trajectory(2), episode], 0.9)


@pytest.mark.parametrize("gamma", [-0.1, 1.1, NAN, True, "0.9", None, torch.tensor(0.9)])
def test_a_discount_outside_its_range_is_refused(gamma):
    with pytest.raises(ValueError, match=r"gamma: expected a discount in \[0, 1\], a plain number, got"):
        Context.from_episodes([trajectory(2)], gamma)


def test_contexts_that_do_not_fit_together_are_refused():
    one, other = Context.from_episodes([trajectory(2)], 0.9), Context.from_episodes([trajectory(2, dim=3)], 0.9)
    for join in (Context.concatenate, Context.stack):
        with pytest.raises(ValueError, match=r"contexts: expected at least one, got none"):
            join([])
        with pytest.raises(TypeError, match=r"contexts: expected a list of Context objects, got Context"):
            join(one)
        with pytest.raises(TypeError, match=r"contexts: expected Context objects, got int at index 1"):
            join([one, 1])
        with pytest.raises(ValueError, match=r"expected one state dimension, got d = 2 and, at index 1, 3"):
            join([one, other])
        with pytest.raises(ValueError, match=r"without batch dimensions, got Context\(shape=\(1, 2, 2\)"):
            join([Context.stack([one])])
    with pytest.raises(ValueError, match=r"padding: expected 'right' or 'left', got 'top'"):
        Context.stack([one], padding="top")
    with pytest.raises(ValueError, match=r"episodes: expected at least one, got none"):
        Context.from_episodes([], 0.9)
    with pytest.raises(TypeError, match=r"episodes: expected a list of Episode objects, got Episode"):
        Context.from_episodes(trajectory(2), 0.9)
    with pytest.raises(TypeError, match=r"dtype: expected torch.float32 or torch.float64, got torch.int64"):
        one.to(dtype=torch.int64)
    with pytest.raises(
        ValueError, match=r"values: expected v at the context's points, shape \(\.\.\., 3\), got \(2,\)"
    ):
        one.td_errors(torch.zeros(2))


def test_a_discount_that_would_be_rounded_to_1_is_refused():
    context = Context.from_episodes([trajectory(2)], 1 - 1e-10)
    assert context.to(dtype=torch.float64).discounts.tolist() == [1 - 1e-10] * 2
    with pytest.raises(
        ValueError, match=r"discounts: γ = 0\.9999999999 would be 1 in torch\.float32; keep it in torch\.float64"
    ):
        context.to(dtype=torch.float32)
    assert Context.from_episodes([trajectory(2)], 1.0).to(dtype=torch.float32).discounts.tolist() == [1.0] * 2
    rollout = Rollout(1)
    rollout.add(torch.zeros(1, 2), np.ones(1), torch.ones(1, 2), np.zeros(1, bool), np.zeros(1, bool))
    with pytest.raises(ValueError, match=r"would be 1 in torch\.float32"):
        rollout.context(1 - 1e-10)
    assert rollout.context(0.9).discounts.tolist() == [float(np.float32(0.9))]


@pytest.mark.parametrize("name", ["states", "rewards"])
def test_numbers_that_would_all_vanish_are_refused(name):
    context = Context(**(GOOD | {"discounts": np.zeros(3), name: np.full(np.shape(GOOD[name]), 1e-60)}))
    with pytest.raises(ValueError, match=rf"{name}: all of them are too small for torch\.float32; scale them up"):
        context.to(dtype=torch.float32)
    beside = np.full(np.shape(GOOD[name]), 1e-60)
    beside.flat[0] = 1.0
    assert Context(**(GOOD | {name: beside})).to(dtype=torch.float32).dtype is torch.float32


LARGE = 2**53 + 1
INTEGERS = {
    "a list": [LARGE, 1, 2],
    "a list with a fraction": [LARGE, 0.5, 2],
    "an array": np.array([LARGE, 1, 2]),
    "a tensor": torch.tensor([LARGE, 1, 2]),
    "unsigned": np.array([2**64 - 1, 1, 2], dtype=np.uint64),
}


@pytest.mark.parametrize("rewards", INTEGERS.values(), ids=INTEGERS)
def test_an_integer_that_float64_would_round_is_refused(rewards):
    with pytest.raises(ValueError, match=r"rewards: float64 would round the integer \d+ to \d+; subtract an offset"):
        Context(**(GOOD | {"rewards": rewards}))
    exact = [2**53, -(2**60), 3]
    for fine in (exact, np.array(exact), torch.tensor(exact)):
        assert Context(**(GOOD | {"rewards": fine})).rewards.tolist() == exact


def test_large_integers_of_an_environment_are_refused_too():
    row = flattening(spaces.Box(0, 2**62, (2,), np.int64))
    assert row(np.array([2**53, 3])).tolist() == [2.0**53, 3.0]
    with pytest.raises(ValueError, match="observations: float64 would round the integer 9007199254740993"):
        row(np.array([LARGE, 3]))


@pytest.mark.parametrize(
    ("values", "error", "message"),
    [
        (torch.zeros(4), ValueError, r"values: expected v at the context's points, shape \(..., 2, 4\), got \(4,\)"),
        (torch.zeros(3, 4), ValueError, r"got \(3, 4\)"),
        (torch.zeros(2, 4, dtype=torch.bool), TypeError, "values: expected floating-point numbers, got torch.bool"),
    ],
)
def test_values_that_do_not_fit_a_batch_are_named(values, error, message):
    one = Context([[0.0], [1.0], [2.0]], [1.0] * 3, [0.5] * 3, [[1.0], [2.0], [3.0]])
    with pytest.raises(error, match=message):
        Context.stack([one, one]).td_errors(values)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_trajectories_of_several_lengths_in_one_tensor_are_refused():
    nested = torch.nested.nested_tensor([torch.zeros(2, 2), torch.zeros(3, 2)])
    with pytest.raises(TypeError, match="states: expected a dense tensor, got a nested one; pad it"):
        Context(nested, **{name: array for name, array in GOOD.items() if name != "states"})
