"""Evaluate a robot's scripted policy in context: one set of weights, two MetaWorld domains."""

import gymnasium as gym
import torch

import icrl_envs  # noqa: F401 - registers the environments
from icrl_agents import Context, collect_episodes, constructions, kernels
from icrl_agents.diagnostics import relative_centred_msve, td_loss

transformer = constructions.weighted_softmax_td(kernels.Laplace(length_scale=0.1), num_layers=40)

for domain in ("plate-slide-v3", "button-press-v3"):
    env = gym.make("icrl/MetaWorldMRP-v0", domain=domain, noise="low")
    episodes = collect_episodes(env, num_episodes=4, max_episode_steps=200, seed=0)
    context = Context.from_episodes(episodes[:2], gamma=0.9)
    held_out = Context.from_episodes(episodes[2:], gamma=0.9)

    value = transformer.fit(context)
    before, after = td_loss(value, held_out, [0, 40]).tolist()
    returns, tails = held_out.returns()
    counted = (tails >= 100).to(torch.float64)
    error = relative_centred_msve(value(held_out.states), returns, counted)
    print(f"{domain:16s} held-out TD loss {before:.3g} → {after:.3g}, centred relative value error {error:.3f}")
    env.close()
