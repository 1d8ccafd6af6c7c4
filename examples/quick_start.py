"""Evaluate a random Boyan's chain in context, with the exact value beside the estimate."""

import gymnasium as gym

import icrl_envs  # noqa: F401 - registers the environments
from icrl_agents import collect, constructions, kernels

env = gym.make("icrl/BoyanChain-v0", num_states=8, gamma=0.9, task_seed=3)
context = collect(env, num_steps=2_000, gamma=0.9, seed=0)

# A softmax transformer of 60 layers, each of them one sweep of weighted softmax TD. No training.
transformer = constructions.weighted_softmax_td(kernels.Exponential(temperature=0.1), num_layers=60)
value = transformer.fit(context)

process = env.get_wrapper_attr("process")
estimate, exact = value(process.features), process.values()
print("state   exact  estimate")
for state, (v, v_hat) in enumerate(zip(exact.tolist(), estimate.tolist(), strict=True)):
    print(f"{state:5d}  {v:6.3f}  {v_hat:8.3f}")
print(f"largest error after 60 layers: {abs(estimate.numpy() - exact).max():.3f}")
print(f"largest error after  5 layers: {abs(value.at_depth(5)(process.features).numpy() - exact).max():.3f}")
