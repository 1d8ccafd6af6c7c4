"""The random chains as Gymnasium environments."""

from functools import partial

from icrl_envs.adapter import ProcessEnv
from icrl_envs.chains import boyan_chain, loop_chain


class BoyanChainEnv(ProcessEnv):
    """A random Boyan's chain (arXiv 2405.13861).

    ## Description
    State i goes to i+1 with a random probability and otherwise to i+2; the second to last state goes to the last,
    which restarts from a random distribution. The exact process, with its value, is `env.unwrapped.process`, a
    `FiniteProcess`.

    ## Action Space
    `Discrete(1)`: a Markov reward process has one action.

    ## Observation Space
    `Box(-1, 1, (d,), float64)`: the features of the state, one-hot (d = `num_states`) or random (d = `num_features`).
    `info["state"]` is the state's index.

    ## Rewards
    The reward r(s) of the state that is left, in [−1, 1] unless `representable`.

    ## Starting State
    Drawn from the distribution `process.start`, which belongs to the task.

    ## Episode End
    Never: the chain is recurrent. `gym.make(..., max_episode_steps=n)` truncates.

    ## Arguments
    * `num_states=10`: at least 2.
    * `gamma=0.9`: the discount, in [0, 1).
    * `features="one_hot"` or `"random"`, the latter from U(−1, 1).
    * `num_features=None`: the number of random features, 4 where None.
    * `representable=False`: whether the value is linear in the features.
    * `task_seed=0`: names the chain. `reset(options={"task_seed": k})` goes over to chain k.
    * `render_mode=None`: `"ansi"` or `"rgb_array"`.

    ## Version History
    * v0: first version.
    """

    def __init__(
        self,
        num_states: int = 10,
        gamma: float = 0.9,
        features: str = "one_hot",
        num_features: int | None = None,
        representable: bool = False,
        task_seed: int = 0,
        render_mode: str | None = None,
    ) -> None:
        """Draw the chain."""
        draw = partial(
            boyan_chain,
            num_states=num_states,
            gamma=gamma,
            features=features,
            num_features=num_features,
            representable=representable,
        )
        super().__init__(draw(task_seed=task_seed), draw=draw, task_seed=task_seed, render_mode=render_mode)


class LoopChainEnv(ProcessEnv):
    """A random sparse ergodic chain: a cycle plus random edges.

    ## Description
    A cycle through all states, a loop at state 0 and a random selection of the other edges, all with random
    weights: ergodic whatever is drawn. The exact process, with its value, is `env.unwrapped.process`, a
    `FiniteProcess`.

    ## Action Space
    `Discrete(1)`: a Markov reward process has one action.

    ## Observation Space
    `Box(-1, 1, (d,), float64)`: the features of the state, one-hot (d = `num_states`) or random (d = `num_features`).
    `info["state"]` is the state's index.

    ## Rewards
    The reward r(s) of the state that is left, in [−1, 1] unless `representable`.

    ## Starting State
    Drawn from the distribution `process.start`, which belongs to the task.

    ## Episode End
    Never: the chain is recurrent. `gym.make(..., max_episode_steps=n)` truncates.

    ## Arguments
    * `num_states=10`: at least 2.
    * `gamma=0.9`: the discount, in [0, 1).
    * `features="one_hot"` or `"random"`, the latter from U(−1, 1).
    * `num_features=None`: the number of random features, 4 where None.
    * `representable=False`: whether the value is linear in the features.
    * `sparsity=0.5`: the share of absent edges among those that ergodicity does not need, in [0, 1].
    * `task_seed=0`: names the chain. `reset(options={"task_seed": k})` goes over to chain k.
    * `render_mode=None`: `"ansi"` or `"rgb_array"`.

    ## Version History
    * v0: first version.
    """

    def __init__(
        self,
        num_states: int = 10,
        gamma: float = 0.9,
        features: str = "one_hot",
        num_features: int | None = None,
        representable: bool = False,
        sparsity: float = 0.5,
        task_seed: int = 0,
        render_mode: str | None = None,
    ) -> None:
        """Draw the chain."""
        draw = partial(
            loop_chain,
            num_states=num_states,
            gamma=gamma,
            features=features,
            num_features=num_features,
            representable=representable,
            sparsity=sparsity,
        )
        super().__init__(draw(task_seed=task_seed), draw=draw, task_seed=task_seed, render_mode=render_mode)
