"""A continuous-state process whose exact value lies in a chosen reproducing kernel Hilbert space."""

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from gymnasium import spaces

from icrl_envs import arguments
from icrl_envs.arrays import real_array
from icrl_envs.gaussian_kernels import KERNELS
from icrl_envs.random_streams import task_streams

MOST_DIFFERENCES = 10**8
"""Numbers in the differences of all pairs of centres, 0.8 GB of float64; more are taken for a slip."""


@dataclass(frozen=True)
class RKHSProcess:
    """A Markov reward process with an Ornstein–Uhlenbeck state and a value from an RKHS (arXiv 2605.09727).

        v(s) = Σ_i c_i κ(s, z_i) ,   s' = a s + σε ,   ε ~ N(0, I) ,   r(s) = v(s) − γ E[v(s') | s]

    The value is chosen and the reward follows from it in closed form, so v is exact. The centres z_i are drawn from
    the stationary law μ = N(0, σ²/(1 − a²) I) and the coefficients c_i from N(0, 1), then scaled to E_μ[v(s)²] = 1,
    so that an absolute error is a relative one.

    Args:
        dim: d ≥ 1, the dimension of the state, which is also the observation.
        kernel: ``"rbf"``, κ(s, z) = exp(−‖s − z‖²/(2ℓ²)), or ``"exponential"``, κ(s, z) = exp(sᵀz/τ).
        length_scale: ℓ > 0 of the RBF; for the exponential kernel the temperature τ > 0, which gives values without
            heavy tails where it is well above the stationary variance σ²/(1 − a²), 0.47 by default.
        num_centers: m ≥ 1, the number of centres.
        gamma: γ in ``[0, 1)``, the discount.
        task_seed: Names the centres and coefficients.
        drift: a in ``(−1, 1)``, the pull of the current state.
        noise: σ > 0, the standard deviation of a step's noise.

    Attributes:
        centers: z, ``(m, d)``, read-only.
        coefficients: c, ``(m,)``, read-only.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If an argument is out of its range, or the exponential kernel overflows at so low a temperature.

    Example:
        >>> process = RKHSProcess(dim=2, task_seed=1)
        >>> process.values(np.zeros((3, 2))).shape
        (3,)
    """

    dim: int = 1
    kernel: str = "rbf"
    length_scale: float = 0.5
    num_centers: int = 10
    gamma: float = 0.9
    task_seed: int = 0
    drift: float = 0.9
    noise: float = 0.3
    centers: np.ndarray = field(init=False, repr=False, compare=False)
    coefficients: np.ndarray = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Check the arguments and draw the centres and coefficients."""
        checked = {
            "dim": arguments.integer("dim", self.dim, 1),
            "kernel": arguments.choice("kernel", self.kernel, tuple(KERNELS)),
            "length_scale": arguments.real("length_scale", self.length_scale, 0.0, low_open=True),
            "num_centers": arguments.integer("num_centers", self.num_centers, 1),
            "gamma": arguments.discount(self.gamma),
            "task_seed": arguments.task_seed(self.task_seed),
            "drift": arguments.real("drift", self.drift, -1.0, 1.0, low_open=True, high_open=True),
            "noise": arguments.real("noise", self.noise, 0.0, low_open=True),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)
        if self.num_centers**2 * self.dim > MOST_DIFFERENCES:
            raise ValueError(
                f"dim and num_centers must have dim · num_centers² ≤ {MOST_DIFFERENCES:,}, the numbers in differences "
                f"between centres; got dim={self.dim:,} and num_centers={self.num_centers:,}."
            )
        try:
            self._draw()
        except OverflowError:
            raise ValueError(
                f"length_scale={self.length_scale:g} and noise={self.noise:g} must have squares that are numbers; "
                "use smaller ones."
            ) from None

    def _draw(self) -> None:
        """Draw z and c, and scale c to a mean square of one: cᵀMc = 1 with M_ij = E_μ[κ(s, z_i) κ(s, z_j)]."""
        center_rng, coefficient_rng = task_streams(self.task_seed, 2)
        z = center_rng.normal(0.0, self.stationary_scale, (self.num_centers, self.dim))
        c = coefficient_rng.normal(size=self.num_centers)
        kernel = KERNELS[self.kernel]
        with np.errstate(over="ignore", invalid="ignore", divide="ignore", under="ignore"):
            M = kernel.second_moment(z, self.length_scale, self.stationary_scale)
            mean_square = c @ M @ c
            c = c / np.sqrt(mean_square)
            reward = reward_expansion(z, z, c, self)
        smallest = min(mean_square, self.length_scale**2)  # subnormal numbers would have lost digits
        if not (np.isfinite([mean_square, *reward]).all() and smallest >= np.finfo(np.float64).tiny):
            raise ValueError(
                f"length_scale={self.length_scale:g} makes the {self.kernel} kernel overflow or vanish on states of "
                f"scale {self.stationary_scale:.3g} in {self.dim} dimensions; use a larger length_scale."
            )
        for name, array in (("centers", z), ("coefficients", c)):
            array.setflags(write=False)
            object.__setattr__(self, name, array)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """Copy and pickle through the constructor: the arguments name the process."""
        return type(self), tuple(getattr(self, entry.name) for entry in fields(self) if entry.init)

    @property
    def stationary_scale(self) -> float:
        """The standard deviation σ/√(1 − a²) of each coordinate under the stationary law."""
        return self.noise / (1.0 - self.drift**2) ** 0.5

    @property
    def observation_space(self) -> spaces.Box:
        """All of R^d: a Gaussian state has no bound."""
        return spaces.Box(-np.inf, np.inf, (self.dim,), np.float64)

    def values(self, states: np.ndarray) -> np.ndarray:
        """Return the exact values v(s), ``(m,)``, of ``states (m, d)``.

        Raises:
            TypeError: If the states are not an array of real numbers.
            ValueError: If they have another shape, are not finite, or so far out that a value overflows; as of all
                that is asked of states.
        """
        return self._of_states(states, expansion)

    def expected_values(self, states: np.ndarray) -> np.ndarray:
        """Return E[v(s') | s], ``(m,)``, for ``states (m, d)``: the mean value one step later."""
        return self._of_states(states, expected_expansion)

    def rewards(self, states: np.ndarray) -> np.ndarray:
        """Return r(s) = v(s) − γ E[v(s') | s], ``(m,)``, for ``states (m, d)``."""
        return self._of_states(states, reward_expansion)

    def sample_start(self, rng: np.random.Generator) -> np.ndarray:
        """Return a state ``(d,)`` from the stationary law N(0, σ²/(1 − a²) I)."""
        return rng.normal(0.0, self.stationary_scale, self.dim)

    def sample_step(self, state: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, float, bool]:
        """Return ``(a s + σε, r(s), False)``."""
        next_state = self.drift * state + self.noise * rng.standard_normal(self.dim)
        reward = reward_expansion(state[None], self.centers, self.coefficients, self)
        return next_state, float(reward[0]), False

    def observe(self, state: np.ndarray) -> np.ndarray:
        """Return the state ``(d,)`` itself, a new array on each call."""
        return state.copy()

    def _of_states(self, states: np.ndarray, expanded: Callable[..., np.ndarray]) -> np.ndarray:
        """Return a sum over the centres, ``(m,)``, at states that are checked."""
        states = real_array("states", states, 2, empty=True)
        if states.shape[1] != self.dim:
            raise ValueError(f"states must have shape (m, {self.dim}); got {states.shape}.")
        with np.errstate(over="ignore", invalid="ignore"):  # at a squared distance of infinity an RBF is 0
            numbers = expanded(states, self.centers, self.coefficients, self)
        if not np.isfinite(numbers).all():
            raise ValueError("states must have values that float64 holds; some overflow so far from the origin.")
        return numbers


_far_out = np.errstate(under="ignore")
"""Where an RBF is 0, as it should be, whatever a user has asked of NumPy."""


@_far_out
def expansion(states: np.ndarray, z: np.ndarray, c: np.ndarray, process: RKHSProcess) -> np.ndarray:
    """Return Σ_i c_i κ(s, z_i), ``(n,)``.

    Args:
        states: s, ``(n, d)``.
        z: The centres: ``(m, d)``, or ``(n, m, d)`` with one set for each state.
        c: The coefficients: ``(m,)`` or ``(n, m)``.
        process: Gives the kernel and its length scale.
    """
    kernel = KERNELS[process.kernel]
    return (c * kernel.value(states[:, None, :], z, process.length_scale)).sum(axis=-1)


@_far_out
def expected_expansion(states: np.ndarray, z: np.ndarray, c: np.ndarray, process: RKHSProcess) -> np.ndarray:
    """Return Σ_i c_i E[κ(s', z_i) | s], ``(n,)``; the arguments are those of :func:`expansion`."""
    kernel = KERNELS[process.kernel]
    means = process.drift * states[:, None, :]
    return (c * kernel.mean(means, z, process.length_scale, process.noise)).sum(axis=-1)


@_far_out
def reward_expansion(states: np.ndarray, z: np.ndarray, c: np.ndarray, process: RKHSProcess) -> np.ndarray:
    """Return Σ_i c_i (κ(s, z_i) − γ E[κ(s', z_i) | s]), ``(n,)``; the arguments are those of :func:`expansion`."""
    return expansion(states, z, c, process) - process.gamma * expected_expansion(states, z, c, process)
