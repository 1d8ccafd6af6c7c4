"""Stable-Baselines3's PPO with an in-context critic in place of its value network, on CartPole."""

import gymnasium as gym

try:
    from icrl_agents.integrations.sb3 import InContextPPO
except ImportError as missing:
    print(missing)
    raise SystemExit from None

from icrl_agents import evaluators, kernels

# Each rollout is a context: weighted softmax TD gives its values, and no value network is trained.
critic = evaluators.WeightedSoftmaxTD(kernels.Laplace(0.5), num_sweeps=100)
model = InContextPPO("MlpPolicy", "CartPole-v1", critic, n_steps=1024, seed=0, device="cpu")
model.learn(total_timesteps=4_096)

env = gym.make("CartPole-v1")
returns = []
for seed in range(5):
    observation, _ = env.reset(seed=seed)
    total, done = 0.0, False
    while not done:
        action, _ = model.predict(observation, deterministic=True)
        observation, reward, terminated, truncated, _ = env.step(action)
        total, done = total + float(reward), terminated or truncated
    returns.append(total)
print(f"returns of five episodes after {model.num_timesteps:,} steps: {returns}")
