"""Importing the package registers its ids, quickly and in silence."""

import importlib
import json
import subprocess
import sys
import warnings
from pathlib import Path

import gymnasium as gym

import icrl_envs

ROOT = Path(icrl_envs.__file__).parents[1]
HEAVY = ("matplotlib", "metaworld", "mujoco", "scipy", "torch", "icrl_agents")


def child(code):
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    return json.loads(done.stdout)


def test_import_is_light():
    seconds, loaded = child(
        "import json, sys, time, gymnasium\n"
        "start = time.process_time()\n"
        "import icrl_envs\n"
        "print(json.dumps([time.process_time() - start, list(sys.modules)]))"
    )
    assert not set(HEAVY) & set(loaded)
    assert seconds < 0.5


def test_making_a_process_env_loads_no_simulator_and_no_pictures():
    loaded = child(
        "import json, sys, gymnasium as gym, icrl_envs\n"
        "for name in ('BoyanChain', 'LoopChain', 'RKHS', 'CartPole'):\n"
        "    gym.make(f'icrl/{name}-v0').reset(seed=0)\n"
        "print(json.dumps(list(sys.modules)))"
    )
    assert not set(HEAVY) & set(loaded)


def test_reimport_and_registering_again_are_silent():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        importlib.reload(icrl_envs)
        importlib.reload(importlib.import_module("icrl_envs.registration"))
        icrl_envs.register_envs()
    assert gym.spec("icrl/CartPole-v0").max_episode_steps == 500


def test_an_unregistered_id_is_registered_again():
    spec = gym.registry.pop("icrl/RKHS-v0")
    icrl_envs.register_envs()
    assert gym.spec("icrl/RKHS-v0") == spec


def test_every_public_name_is_there_and_documented():
    for name in icrl_envs.__all__:
        assert getattr(icrl_envs, name).__doc__
