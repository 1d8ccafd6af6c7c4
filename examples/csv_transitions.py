"""Evaluate transitions that were logged to a CSV file: one row per step, with the state that followed."""

from pathlib import Path

import numpy as np

from icrl_agents import Context, evaluators, kernels

table = np.genfromtxt(Path(__file__).with_name("transitions.csv"), delimiter=",", names=True)
states = np.stack([table[name] for name in ("position", "velocity", "angle", "angular_velocity")], axis=1)
following = np.stack([table[f"next_{name}"] for name in ("position", "velocity", "angle", "angular_velocity")], axis=1)
discounts = 0.95 * (1.0 - table["terminated"])
scale = np.where(np.ptp(states, axis=0) > 0, states.std(axis=0), 1.0)  # 1 where nothing varies
context = Context(states / scale, table["reward"], discounts, following / scale)
value = evaluators.WeightedSoftmaxTD(kernels.Laplace(0.5), num_sweeps=100).fit(context)

returns, seen = context.returns()
complete = seen == float("inf")
print(f"{len(context)} transitions, {int((context.discounts == 0).sum())} of them the last of an episode")
for name, angle in (("upright", 0.0), ("leaning", 0.1), ("falling", 0.2)):
    state = np.array([0.0, 0.0, angle, 5 * angle]) / scale
    print(f"{name}: the policy has about {float(value(state)):.1f} discounted steps left")
error = (value(context.states) - returns)[complete].square().mean().sqrt()
print(f"root-mean-square difference to the logged returns: {float(error):.1f}")
