"""Exact copies of a simulator's state: whatever comes after a restored one is equal to the last bit."""

# MuJoCo's compiled names have no types.
# pyright: reportAttributeAccessIssue=false
import copy
from dataclasses import dataclass
from typing import Any

import mujoco
import numpy as np
from numpy.typing import NDArray

from icrl_envs.metaworld.simulator import Simulator

_STATE = mujoco.mjtState.mjSTATE_INTEGRATION
_DATA_FIELDS = ("xpos", "xquat", "geom_xpos", "site_xpos")  # the fields of the data that a domain keeps rows of
_VALUE_TYPES = (np.ndarray, np.generic, bool, int, float, str, tuple, list, dict, type(None))
_SETTINGS = {"render_mode", "camera_name", "camera_id", "width", "height"}  # the simulator's own, not the state's


@dataclass(frozen=True, eq=False)
class SimulatorState:
    """All that a domain's dynamics and rewards depend on.

    Args:
        physics: MuJoCo's integration state: time, positions, velocities, warm start, controls, mocap.
        body_positions: ``(bodies, 3)`` of the model, in m; the goal moves some.
        site_positions: ``(sites, 3)`` of the model, in m.
        attributes: The Python attributes of the domain's object: initial positions, targets, flags, the last frame.
        rows: The attributes that are not values but rows of MuJoCo's data and follow it: field name and row index.
    """

    physics: NDArray[np.float64]
    body_positions: NDArray[np.float64]
    site_positions: NDArray[np.float64]
    attributes: dict[str, Any]
    rows: dict[str, tuple[str, int]]


@dataclass(frozen=True, eq=False)
class Snapshot:
    """An environment's state: the simulator's, what it last showed, and its random streams.

    Args:
        domain: The domain to which the state belongs.
        reward_version: The rewards to which it belongs.
        simulator: The simulator's state.
        full: ``(39,)``, the last full observation, goal included.
        streams: The random generators and their seeds, by attribute name.
    """

    domain: str
    reward_version: str
    simulator: SimulatorState
    full: NDArray[np.float64]
    streams: dict[str, Any]


def capture(simulator: Simulator) -> SimulatorState:
    """Return a copy of the state of ``simulator``."""
    model, data = simulator.model, simulator.data
    physics = np.empty(mujoco.mj_stateSize(model, _STATE))
    mujoco.mj_getState(model, data, physics, _STATE)
    values = _values(simulator)
    rows = {name: row for name, value in values.items() if (row := _row(data, value)) is not None}
    attributes = {name: copy.deepcopy(value) for name, value in values.items() if name not in rows}
    return SimulatorState(physics, model.body_pos.copy(), model.site_pos.copy(), attributes, rows)


def restore(simulator: Simulator, state: SimulatorState) -> None:
    """Put ``simulator``, of the same domain, into a captured state."""
    model, data = simulator.model, simulator.data
    model.body_pos[:] = state.body_positions
    model.site_pos[:] = state.site_positions
    mujoco.mj_setState(model, data, state.physics, _STATE)
    mujoco.mj_forward(model, data)  # recomputes what follows from the state, and changes the solver's warm start
    mujoco.mj_setState(model, data, state.physics, _STATE)
    for name in _values(simulator):
        delattr(simulator, name)
    vars(simulator).update(copy.deepcopy(state.attributes))
    vars(simulator).update({name: getattr(data, field)[row] for name, (field, row) in state.rows.items()})


def _values(simulator: Simulator) -> dict[str, Any]:
    """Return the attributes that hold values, as opposed to the model, the data, spaces, generators and renderers."""
    return {
        name: value
        for name, value in vars(simulator).items()
        if isinstance(value, _VALUE_TYPES) and name not in _SETTINGS
    }


def _row(data: mujoco.MjData, value: object) -> tuple[str, int] | None:
    """Return the field and the row of MuJoCo's data that an array is, or None if it has memory of its own."""
    if not isinstance(value, np.ndarray) or value.flags.owndata:
        return None
    for field in _DATA_FIELDS:
        array = getattr(data, field)
        offset = _address(value) - _address(array)
        if 0 <= offset < array.nbytes:
            return field, offset // array.strides[0]
    return None


def _address(array: NDArray[Any]) -> int:
    """Return where an array's memory begins."""
    return array.__array_interface__["data"][0]
