"""What must hold of every registered id; a new one is covered on arrival."""

import hashlib
import inspect
import json
import pickle
import subprocess
import sys
import warnings
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils.env_checker import check_env

import icrl_envs

IDS = sorted(id for id in gym.registry if id.startswith("icrl/"))
DRAWN = [id for id in IDS if not id.startswith("icrl/MetaWorld")]  # the simulator's camera needs OpenGL
UNBOUNDED = "A Box observation space m(in|ax)imum value is -?infinity"
ROOT = Path(icrl_envs.__file__).parents[1]


def digest(env, seed, steps=60, options=None):
    """Return a hash of every bit of a rollout under random actions seeded by ``seed``."""
    env.action_space.seed(seed)
    observation, _ = env.reset(seed=seed, options=options)
    bits = hashlib.sha256(observation.tobytes())
    for _ in range(steps):
        observation, *outcome, _ = env.step(env.action_space.sample())
        bits.update(observation.tobytes() + repr(outcome).encode())
        if outcome[1] or outcome[2]:
            bits.update(env.reset()[0].tobytes())
    return bits.hexdigest()


@pytest.fixture(params=IDS)
def env(request):
    made = gym.make(request.param)
    yield made
    made.close()


def test_the_ids_of_the_contract_are_registered_by_strings():
    names = ("BoyanChain", "CartPole", "LoopChain", "MetaWorld", "MetaWorldMRP", "RKHS")
    assert [f"icrl/{name}-v0" for name in names] == IDS
    assert all(isinstance(gym.spec(id).entry_point, str) for id in IDS)


def test_check_env_has_nothing_but_its_advice_on_unbounded_boxes(env):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", f".*{UNBOUNDED}")
        check_env(env.unwrapped, skip_render_check=env.spec.id not in DRAWN)


def test_500_observations_lie_in_the_space_and_types_are_exact(env):
    env.action_space.seed(0)
    observation, _ = env.reset(seed=0)
    for _ in range(500):
        assert observation in env.observation_space
        assert observation.dtype == env.observation_space.dtype == np.float64
        observation, reward, terminated, truncated, _ = env.step(env.action_space.sample())
        assert (type(reward), type(terminated), type(truncated)) == (float, bool, bool)
        if terminated or truncated:
            observation, _ = env.reset()


def test_the_seed_fixes_the_rollout(env):
    first = digest(env, 7)
    assert digest(env, 7) == first
    assert digest(gym.make(env.spec.id), 7) == first
    assert digest(env, 8) != first


def test_the_global_generator_is_neither_used_nor_changed(env):
    np.random.seed(0)  # noqa: NPY002
    before = pickle.dumps(np.random.get_state())  # noqa: NPY002
    first = digest(gym.make(env.spec.id), 3)
    assert pickle.dumps(np.random.get_state()) == before  # noqa: NPY002
    np.random.seed(1)  # noqa: NPY002
    assert digest(env, 3) == first


def test_task_seed_names_the_task_whoever_draws_it(env):
    other = digest(gym.make(env.spec.id, task_seed=5), 7)
    assert digest(env, 7) != other
    assert digest(env, 7, options={"task_seed": 5}) == other
    assert digest(env, 7) == other, "the task stays until the next one is asked for"
    assert digest(env, 7, options={"task_seed": 0}) == digest(gym.make(env.spec.id), 7)


def test_spec_survives_json_and_pickle(env):
    made = gym.make(env.spec.id, task_seed=5)
    first = digest(made, 7)
    assert digest(gym.make(EnvSpec.from_json(made.spec.to_json())), 7) == first
    assert digest(gym.make(pickle.loads(pickle.dumps(made.spec))), 7) == first


def test_a_fresh_process_makes_the_same_rollouts():
    code = f"""
import hashlib, json, gymnasium as gym
{inspect.getsource(digest)}
print(json.dumps({{id: digest(gym.make("icrl_envs:" + id), 7) for id in {IDS}}}))
"""
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == {id: digest(gym.make(id), 7) for id in IDS}
    assert done.stderr == ""


@pytest.mark.parametrize("id", IDS)
def test_copies_in_spawned_processes_equal_copies_in_this_one(id):
    rollouts = []
    for mode, settings in (("sync", {}), ("async", {"context": "spawn"})):
        envs = gym.make_vec(id, 2, vectorization_mode=mode, vector_kwargs=settings)
        envs.action_space.seed(0)
        observations = [envs.reset(seed=1)[0]]
        observations += [envs.step(envs.action_space.sample())[0] for _ in range(5)]
        rollouts.append(np.array(observations))
        envs.close()
    np.testing.assert_array_equal(*rollouts)


@pytest.mark.parametrize("id", IDS)
def test_copies_of_a_vector_env_differ_and_are_reproduced(id):
    def run():
        envs = gym.make_vec(id, 4, vectorization_mode="sync")
        envs.action_space.seed(0)
        observations = [envs.reset(seed=1)[0]]
        observations += [envs.step(np.broadcast_to(0, (4, *envs.single_action_space.shape)))[0] for _ in range(30)]
        envs.close()
        return np.stack(observations, axis=1)

    copies = run()
    assert len({copy.tobytes() for copy in copies}) == 4
    np.testing.assert_array_equal(copies, run())


@pytest.mark.parametrize("id", DRAWN)
def test_pictures_show_the_state(id):
    env = gym.make(id, render_mode="rgb_array")
    env.reset(seed=0)
    first = env.render()
    for _ in range(4):
        env.step(0)
    second = env.render()
    assert first.shape == second.shape == (400, 480, 3)
    assert first.dtype == np.uint8
    assert len(np.unique(first)) > 10
    assert (first != second).any()


@pytest.mark.parametrize("id", [id for id in IDS if not id.startswith("icrl/MetaWorld-")])
def test_processes_have_one_action_and_say_so(id):
    env = gym.make(id)
    assert env.action_space == gym.spaces.Discrete(1)
    env.reset(seed=0)
    with pytest.raises(ValueError, match="action must be 0"):
        env.unwrapped.step(1)


@pytest.mark.parametrize("id", IDS)
@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"task_seed": -1}, ValueError, r"task_seed must be an integer .*; got -1"),
        ({"task_seed": 1.5}, TypeError, r"task_seed must be an integer .*; got 1.5 of type float"),
        ({"task_seed": True}, TypeError, r"task_seed .* of type bool"),
        ({"render_mode": "rgb_aray"}, ValueError, r"render_mode .* Did you mean 'rgb_array'\?"),
    ],
)
def test_wrong_common_arguments_are_named(id, arguments, error, message):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*render_mode='rgb_aray'")  # Gymnasium's own warning comes first
        with pytest.raises(error, match=message):
            gym.make(id, **arguments)


def test_unknown_options_are_named_and_change_nothing(env):
    first = digest(env, 7)
    with pytest.raises(ValueError, match=r"options must be .*task_seed.* got 'task_sed'\. Did you mean 'task_seed'"):
        env.reset(seed=8, options={"task_sed": 1})
    assert digest(env, 7) == first


@pytest.mark.parametrize("id", DRAWN)
def test_gamma_must_be_below_one(id):
    with pytest.raises(ValueError, match=r"gamma must be a finite number in \[0, 1\); got 1.0. .*use a discount"):
        gym.make(id, gamma=1.0)
