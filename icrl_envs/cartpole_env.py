"""CartPole with random physics under a random policy as a Gymnasium environment."""

from functools import partial
from typing import Any

from icrl_envs.adapter import ProcessEnv
from icrl_envs.cartpole import random_cartpole


class CartPoleEnv(ProcessEnv):
    """CartPole with randomised physics under a random policy, the action folded in.

    ## Description
    A task draws the physics and the policy: gravity 7–13 m/s², cart 0.5–2 kg, pole 0.05–0.5 kg, half pole length
    0.25–1 m, force 5–15 N; an ε-greedy linear controller with weights from U(0, 1) and ε from U(0.1, 0.5). The
    equations of motion are those of Gymnasium's `CartPole-v1`. The process itself is `env.unwrapped.process`.

    ## Action Space
    `Discrete(1)`: the policy acts, so that the environment is a Markov reward process.

    ## Observation Space
    `Box` of shape `(4,)`, float64: cart position in ±4.8 m, cart velocity in m/s, pole angle in ±0.419 rad, pole
    angular velocity in rad/s.

    ## Rewards
    1 for every step, the terminating one included.

    ## Starting State
    Each coordinate from U(−0.05, 0.05).

    ## Episode End
    Terminated when the cart leaves ±2.4 m or the pole ±12°; truncated after 500 steps.

    ## Arguments
    * `gamma=0.9`: the discount, in [0, 1).
    * `task_seed=0`: names the physics and the policy. `reset(options={"task_seed": k})` goes over to task k.
    * `render_mode=None`: `"ansi"` or `"rgb_array"` (drawn with Matplotlib, no pygame needed).

    ## Version History
    * v0: first version.
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi", "rgb_array"], "render_fps": 50}  # noqa: RUF012 (declared so by Gymnasium)

    def __init__(self, gamma: float = 0.9, task_seed: int = 0, render_mode: str | None = None) -> None:
        """Draw the task."""
        draw = partial(random_cartpole, gamma=gamma)
        super().__init__(draw(task_seed=task_seed), draw=draw, task_seed=task_seed, render_mode=render_mode)
