"""A kernel of your own: any callable on two sets of states."""

import gymnasium as gym
import numpy as np
import torch

import icrl_envs  # noqa: F401 - registers the environments
from icrl_agents import collect, diagnostics, evaluators, kernels


def rational_quadratic(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """κ(x, x′) = 1 / (1 + ‖x − x′‖²/2ℓ²) with ℓ = 0.2, a mixture of Gaussian kernels of all widths."""
    squares = (x[..., :, None, :] - y[..., None, :, :]).square().sum(-1)  # by differences, which keep all digits
    return 1.0 / (1.0 + squares / (2 * 0.2**2))


env = gym.make("icrl/RKHS-v0", length_scale=1.0, task_seed=1)
process = env.get_wrapper_attr("process")
context = collect(env, num_steps=1_000, gamma=process.gamma, seed=0)
states = np.linspace(-1.5, 1.5, 7)[:, None]
exact = torch.from_numpy(process.values(states))
print("exact              ", exact.numpy().round(2))
for name, kernel in {"rational quadratic": rational_quadratic, "RBF": kernels.RBF(length_scale=0.25)}.items():
    value = evaluators.WeightedSoftmaxTD(kernel, num_sweeps=60).fit(context)
    error = diagnostics.relative_msve(value(states), exact)
    print(f"{name:19s}", value(states).numpy().round(2), f"relative MSVE {error:.3f}")
