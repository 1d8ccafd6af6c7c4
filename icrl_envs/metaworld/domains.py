"""The names of the 50 domains and of the noise levels; importing this does not import the simulator."""

import numbers

from icrl_envs import arguments

DOMAINS = (
    "assembly-v3",
    "basketball-v3",
    "bin-picking-v3",
    "box-close-v3",
    "button-press-topdown-v3",
    "button-press-topdown-wall-v3",
    "button-press-v3",
    "button-press-wall-v3",
    "coffee-button-v3",
    "coffee-pull-v3",
    "coffee-push-v3",
    "dial-turn-v3",
    "disassemble-v3",
    "door-close-v3",
    "door-lock-v3",
    "door-open-v3",
    "door-unlock-v3",
    "drawer-close-v3",
    "drawer-open-v3",
    "faucet-close-v3",
    "faucet-open-v3",
    "hammer-v3",
    "hand-insert-v3",
    "handle-press-side-v3",
    "handle-press-v3",
    "handle-pull-side-v3",
    "handle-pull-v3",
    "lever-pull-v3",
    "peg-insert-side-v3",
    "peg-unplug-side-v3",
    "pick-out-of-hole-v3",
    "pick-place-v3",
    "pick-place-wall-v3",
    "plate-slide-back-side-v3",
    "plate-slide-back-v3",
    "plate-slide-side-v3",
    "plate-slide-v3",
    "push-back-v3",
    "push-v3",
    "push-wall-v3",
    "reach-v3",
    "reach-wall-v3",
    "shelf-place-v3",
    "soccer-v3",
    "stick-pull-v3",
    "stick-push-v3",
    "sweep-into-v3",
    "sweep-v3",
    "window-close-v3",
    "window-open-v3",
)

NOISE_LEVELS = {"high": 1.0, "mid": 0.5, "low": 0.1}
"""The named standard deviations σ of the policy noise, in units of the action, whose range is [−1, 1]."""

_SYNONYMS = {"medium": "mid"}


def domain_name(domain: object) -> str:
    """Return ``domain`` if it is one of the 50 names.

    Raises:
        TypeError: If it is not a string.
        ValueError: If there is no such domain; the message suggests the closest one.
    """
    return arguments.choice("domain", domain, DOMAINS)


def noise_scale(noise: object) -> float:
    """Return the standard deviation σ ≥ 0 that a level or a number stands for.

    Args:
        noise: ``"high"``, ``"mid"`` (or ``"medium"``), ``"low"`` or σ itself.

    Raises:
        TypeError: If it is neither a string nor a real number.
        ValueError: If there is no such level, or the number is negative, infinite or NaN.
    """
    if isinstance(noise, str):
        level = arguments.choice("noise", noise, (*NOISE_LEVELS, *_SYNONYMS))
        return NOISE_LEVELS[_SYNONYMS.get(level, level)]
    if isinstance(noise, bool) or not isinstance(noise, numbers.Real):
        levels = ", ".join(map(repr, NOISE_LEVELS))
        raise TypeError(
            f"noise must be one of {levels} or a standard deviation ≥ 0; got {noise!r} of type {type(noise).__name__}."
        )
    return arguments.real("noise", noise, 0.0)
