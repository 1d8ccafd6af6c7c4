"""Kernels with closed-form moments under Gaussian states: values, means and second moments."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np


def rbf(s: np.ndarray, z: np.ndarray, length_scale: float) -> np.ndarray:
    """Return κ(s, z) = exp(−‖s − z‖²/(2ℓ²)), ``(...)``.

    Args:
        s: States, ``(..., d)``.
        z: Centres, ``(..., d)``, broadcast against ``s``.
        length_scale: ℓ > 0.
    """
    return np.exp(-np.square(s - z).sum(axis=-1) / (2.0 * length_scale**2))


def rbf_mean(mean: np.ndarray, z: np.ndarray, length_scale: float, noise: float) -> np.ndarray:
    """Return E κ(s, z) = (ℓ²/(ℓ²+σ²))^{d/2} exp(−‖μ − z‖²/(2(ℓ²+σ²))) for s ~ N(μ, σ²I), ``(...)``.

    Args:
        mean: μ, ``(..., d)``.
        z: Centres, ``(..., d)``, broadcast against ``mean``.
        length_scale: ℓ > 0.
        noise: σ ≥ 0.
    """
    spread = length_scale**2 + noise**2
    return (length_scale**2 / spread) ** (z.shape[-1] / 2) * rbf(mean, z, spread**0.5)


def rbf_second_moment(z: np.ndarray, length_scale: float, noise: float) -> np.ndarray:
    """Return E κ(s, z_i) κ(s, z_j) for s ~ N(0, σ²I), ``(m, m)``, of centres ``z (m, d)``.

    The product of two RBFs is one around the midpoint, of width ℓ/√2, times κ at width √2 ℓ between the centres.
    """
    apart = rbf(z[:, None, :], z, 2**0.5 * length_scale)
    middle = (z[:, None, :] + z) / 2
    return apart * rbf_mean(np.zeros_like(middle), middle, length_scale / 2**0.5, noise)


def exponential(s: np.ndarray, z: np.ndarray, temperature: float) -> np.ndarray:
    """Return κ(s, z) = exp(sᵀz/τ), ``(...)``.

    Args:
        s: States, ``(..., d)``.
        z: Centres, ``(..., d)``, broadcast against ``s``.
        temperature: τ > 0.
    """
    return np.exp((s * z).sum(axis=-1) / temperature)


def exponential_mean(mean: np.ndarray, z: np.ndarray, temperature: float, noise: float) -> np.ndarray:
    """Return E κ(s, z) = exp(μᵀz/τ + σ²‖z‖²/(2τ²)) for s ~ N(μ, σ²I), ``(...)``.

    Args:
        mean: μ, ``(..., d)``.
        z: Centres, ``(..., d)``, broadcast against ``mean``.
        temperature: τ > 0.
        noise: σ ≥ 0.
    """
    growth = noise**2 * np.square(z).sum(axis=-1) / (2.0 * temperature**2)
    return np.exp((mean * z).sum(axis=-1) / temperature + growth)


def exponential_second_moment(z: np.ndarray, temperature: float, noise: float) -> np.ndarray:
    """Return E κ(s, z_i) κ(s, z_j) = E κ(s, z_i + z_j) for s ~ N(0, σ²I), ``(m, m)``, of centres ``z (m, d)``."""
    total = z[:, None, :] + z
    return exponential_mean(np.zeros_like(total), total, temperature, noise)


class GaussianKernel(NamedTuple):
    """A kernel's value κ(s, z), its mean E κ(s, z) and its second moments E κ(s, z_i) κ(s, z_j)."""

    value: Callable[[np.ndarray, np.ndarray, float], np.ndarray]
    mean: Callable[[np.ndarray, np.ndarray, float, float], np.ndarray]
    second_moment: Callable[[np.ndarray, float, float], np.ndarray]


KERNELS = {
    "rbf": GaussianKernel(rbf, rbf_mean, rbf_second_moment),
    "exponential": GaussianKernel(exponential, exponential_mean, exponential_second_moment),
}
