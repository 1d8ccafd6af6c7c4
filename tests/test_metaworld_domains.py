"""Names of domains and noise levels, without the simulator."""

import subprocess
import sys

import numpy as np
import pytest

from icrl_envs.metaworld.domains import DOMAINS, NOISE_LEVELS, domain_name, noise_scale


def test_the_names_are_the_librarys():
    from metaworld.env_dict import ALL_V3_ENVIRONMENTS
    from metaworld.policies import ENV_POLICY_MAP

    assert len(DOMAINS) == len(set(DOMAINS)) == 50
    assert set(DOMAINS) == set(ALL_V3_ENVIRONMENTS) == set(ENV_POLICY_MAP)


def test_importing_the_names_does_not_import_the_simulator():
    code = (
        "import sys, icrl_envs, icrl_envs.metaworld.domains\n"
        "print(sorted({'metaworld', 'mujoco', 'torch', 'scipy'} & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


@pytest.mark.parametrize(("noise", "sigma"), [("high", 1.0), ("mid", 0.5), ("medium", 0.5), ("low", 0.1), (0, 0.0)])
def test_noise_levels(noise, sigma):
    assert noise_scale(noise) == sigma
    assert isinstance(noise_scale(np.float32(0.5)), float)
    assert list(NOISE_LEVELS.values()) == [1.0, 0.5, 0.1]


@pytest.mark.parametrize(
    ("noise", "error", "message"),
    [
        ("medum", ValueError, r"noise must be one of 'high', 'mid', 'low'.*got 'medum'.*Did you mean 'medium'\?"),
        (-0.5, ValueError, r"noise must be a finite number in \[0, inf\); got -0.5"),
        (float("nan"), ValueError, "noise must be a finite number"),
        (None, TypeError, "noise must be one of 'high', 'mid', 'low' or a standard deviation ≥ 0; got None"),
        (True, TypeError, "or a standard deviation"),
    ],
)
def test_wrong_noise(noise, error, message):
    with pytest.raises(error, match=message):
        noise_scale(noise)


@pytest.mark.parametrize(
    ("domain", "error", "message"),
    [
        ("pick-place", ValueError, r"domain must be one of 50 names; got 'pick-place'. Did you mean 'pick-place-v3'\?"),
        ("button-pres-v3", ValueError, r"Did you mean 'button-press-v3'\?"),
        ("pick-place-v2", ValueError, r"got 'pick-place-v2'\. Did you mean 'pick-place-v3'\?"),
        (3, TypeError, "domain must be one of"),
    ],
)
def test_wrong_domain(domain, error, message):
    with pytest.raises(error, match=message):
        domain_name(domain)
