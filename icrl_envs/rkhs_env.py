"""The RKHS process as a Gymnasium environment."""

from functools import partial

from icrl_envs.adapter import ProcessEnv
from icrl_envs.rkhs import RKHSProcess


class RKHSEnv(ProcessEnv):
    """A continuous-state process whose exact value lies in a chosen RKHS (arXiv 2605.09727).

    ## Description
    The state follows s' = a s + σε with a = 0.9 and σ = 0.3. The value v(s) = Σ_i c_i κ(s, z_i) is drawn with the
    task and has unit mean square under the stationary law; the reward is the one that makes it the value. The exact
    process is `env.unwrapped.process`, an `RKHSProcess` with `values(states)`.

    ## Action Space
    `Discrete(1)`: a Markov reward process has one action.

    ## Observation Space
    `Box(-inf, inf, (dim,), float64)`: the state.

    ## Rewards
    r(s) = v(s) − γ E[v(s') | s] of the state that is left, in closed form.

    ## Starting State
    From the stationary law N(0, σ²/(1 − a²)).

    ## Episode End
    Never: the process is recurrent. `gym.make(..., max_episode_steps=n)` truncates.

    ## Arguments
    * `dim=1`: the dimension of the state.
    * `kernel="rbf"`, exp(−‖s − z‖²/(2ℓ²)), or `"exponential"`, exp(sᵀz/τ).
    * `length_scale=0.5`: ℓ, or τ for the exponential kernel, where values near 2 avoid heavy tails.
    * `num_centers=10`: the number of terms of the value.
    * `gamma=0.9`: the discount, in [0, 1).
    * `task_seed=0`: names the value. `reset(options={"task_seed": k})` goes over to value k.
    * `render_mode=None`: `"ansi"` or `"rgb_array"`.

    ## Version History
    * v0: first version.
    """

    def __init__(
        self,
        dim: int = 1,
        kernel: str = "rbf",
        length_scale: float = 0.5,
        num_centers: int = 10,
        gamma: float = 0.9,
        task_seed: int = 0,
        render_mode: str | None = None,
    ) -> None:
        """Draw the value."""
        draw = partial(
            RKHSProcess, dim=dim, kernel=kernel, length_scale=length_scale, num_centers=num_centers, gamma=gamma
        )
        super().__init__(draw(task_seed=task_seed), draw=draw, task_seed=task_seed, render_mode=render_mode)
