"""Continuous states: the closed-form reward of RKHS processes, and their values recovered from trajectories."""

from __future__ import annotations

from collections.abc import Iterator

import gymnasium as gym
import numpy as np
import torch

from icrl_agents import constructions, kernels
from icrl_agents.collection import collect
from icrl_agents.context import Context
from icrl_agents.diagnostics import relative_msve
from icrl_agents.studies.verify.config import VerifyConfig
from icrl_agents.studies.verify.constructions import DEPTH, KERNEL, SOFTMAX
from icrl_agents.studies.verify.plain import squared_distance
from icrl_agents.studies.verify.rows import Row, largest
from icrl_agents.studies.verify.samples import GAMMA
from icrl_agents.transformer import InContextTransformer
from icrl_agents.value_function import DivergenceError, Evaluator
from icrl_envs import RKHSProcess

NUM_SAMPLES, NUM_STATES = 20_000, 5
LARGEST_Z = 4.5
"""Of some hundred standard normal numbers, one is larger with probability 1e-3."""
NUM_STEPS, SHORT = 1_000, 100
LARGEST_ERROR = 0.05


def check_rkhs(config: VerifyConfig) -> Iterator[Row]:
    """Yields the rows on RKHS processes."""
    yield _reward(config)
    transformers: dict[str, tuple[str, InContextTransformer]] = {
        "softmax TD, RBF of ℓ = 0.4": (SOFTMAX, constructions.weighted_softmax_td(kernels.RBF(0.4), DEPTH)),
        "kernel TD, RBF of ℓ = 0.5": (
            KERNEL,
            constructions.kernel_td(kernels.RBF(0.5), 2 * DEPTH, form="temporal_shift"),
        ),
    }
    for name, (source, transformer) in transformers.items():
        errors, short = (_errors(config, transformer, n) for n in (NUM_STEPS, SHORT))
        on = f"{len(errors)} tasks, one trajectory of {NUM_STEPS:,} steps, L = {transformer.num_layers}"
        claim = f"{name} recovers the value: median relative MSVE"
        yield Row(claim=claim, source=source, on=on, measured=float(np.median(errors)), at_most=LARGEST_ERROR)
        share = float(np.median(errors) / np.median(short))
        yield Row(
            claim="and better from more: over that of 100 steps", source=source, on=on, measured=share, at_most=0.5
        )


def _reward(config: VerifyConfig) -> Row:
    """The TD error of the exact value has mean zero in every state; all but the reward is computed anew here."""
    rng = np.random.default_rng(config.first_seed)
    settings = ({"dim": 1}, {"dim": 2}, {"dim": 2, "kernel": "exponential", "length_scale": 2.0})
    processes = [RKHSProcess(task_seed=config.first_seed + k, **each) for k in range(8) for each in settings]  # pyright: ignore[reportArgumentType]
    scores = [abs(_z(p, state, rng)) for p in processes for state in rng.normal(0.0, 0.7, (NUM_STATES, p.dim))]
    return Row(
        claim="closed-form reward = v(s) − γE[v(s′)]: largest |z|",
        source=KERNEL,
        on=f"{len(scores)} states of {len(processes)} processes, {NUM_SAMPLES:,} samples each",
        measured=largest(scores),
        at_most=LARGEST_Z,
    )


def _z(process: RKHSProcess, state: np.ndarray, rng: np.random.Generator) -> float:
    """Mean TD error at ``state (d,)`` over its standard error."""
    following = process.drift * state + process.noise * rng.standard_normal((NUM_SAMPLES, process.dim))
    _, reward, _ = process.sample_step(state, rng)
    errors = reward + process.gamma * _value(process, following) - _value(process, state[None])
    return float(errors.mean() / (errors.std() / NUM_SAMPLES**0.5))


def _value(process: RKHSProcess, states: np.ndarray) -> np.ndarray:
    """v(s) = Σ_i c_i κ(s, z_i)."""
    if process.kernel == "rbf":
        exponents = -squared_distance(states, process.centers) / (2 * process.length_scale**2)
    else:
        exponents = states @ process.centers.T / process.length_scale
    return np.exp(exponents) @ process.coefficients


def _errors(config: VerifyConfig, evaluator: Evaluator, num_steps: int) -> np.ndarray:
    """Relative MSVE of each task, on states of the stationary law."""
    env = gym.make_vec(
        "icrl/RKHS-v0",
        num_envs=max(4, config.chains // 8),
        vectorization_mode="vector_entry_point",
        gamma=GAMMA,
        task_seed=config.first_seed,
    )
    context = collect(env, num_steps=num_steps, gamma=GAMMA, seed=config.first_seed, stack=True).to(config.device)
    processes: list[RKHSProcess] = env.unwrapped.processes  # type: ignore[attr-defined]
    states = np.random.default_rng(config.first_seed).normal(0.0, processes[0].stationary_scale, (500, 1))
    exact = torch.as_tensor(np.stack([_value(process, states) for process in processes]))
    try:
        return relative_msve(evaluator.fit(context)(torch.as_tensor(states)).cpu(), exact).numpy()
    except DivergenceError:
        each = zip(context.states, context.rewards, context.discounts, context.next_states, exact, strict=True)
        return np.array([_error(evaluator, Context(*parts), states, true) for *parts, true in each])


def _error(evaluator: Evaluator, context: Context, states: np.ndarray, exact: torch.Tensor) -> float:
    """Relative MSVE of one task; infinite where the sweeps diverge."""
    try:
        return float(relative_msve(evaluator.fit(context)(torch.as_tensor(states)).cpu(), exact))
    except DivergenceError:
        return float("inf")
