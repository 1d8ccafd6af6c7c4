"""The MetaWorld simulator of a domain: the stock class with its dynamics, rewards and success, sped up.

The stock class is subclassed, never changed in place: other users of the library in the same process keep theirs.
What is overridden here gives the same numbers to the last bit.
"""

# MuJoCo's compiled names have no types.
# pyright: reportAttributeAccessIssue=false
import copy
import functools
from typing import Any

import mujoco
import numpy as np
from metaworld.env_dict import ALL_V3_ENVIRONMENTS
from metaworld.sawyer_xyz_env import SawyerXYZEnv
from numpy.typing import NDArray

from icrl_envs.metaworld.quaternions import Rotation
from icrl_envs.metaworld.rebinding import rebound

FULL_SIZE = 39  # two frames of 18 (hand 3, gripper 1, two objects of 7) and the goal 3
_FRAME_SIZE = 18


class Simulator(SawyerXYZEnv):
    """What the domains share.

    Compared with the stock class, a model is compiled once per process; the scan of the contacts for the info's
    ``grasp_success`` and the assembly of the observation are direct; and time stands still in the first of the two
    passes that a reset makes over a domain's ``reset_model``, whose only lasting effect is where it puts the bodies.
    """

    _moving = True  # whether time passes

    def _initialize_simulation(self) -> tuple[mujoco.MjModel, mujoco.MjData]:
        """Return a copy of the compiled model, as a reset moves some of its bodies, and fresh data."""
        model = copy.copy(_compiled(self.fullpath))
        model.vis.global_.offwidth = max(model.vis.global_.offwidth, self.width)
        model.vis.global_.offheight = max(model.vis.global_.offheight, self.height)
        self._claws = model.body("rightclaw").id, model.body("leftclaw").id
        self._fingers = model.site("rightEndEffector").id, model.site("leftEndEffector").id
        self._pads = model.geom("leftpad_geom").id, model.geom("rightpad_geom").id
        return model, mujoco.MjData(model)

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float64], dict[str, Any]]:
        """Reset as the stock class does, which ignores both arguments."""
        self._moving = False
        return super().reset(seed=seed, options=options)

    def reset_model(self) -> NDArray[np.float64]:
        """Run the domain's own reset; from its end on, time passes."""
        observation = super().reset_model()
        self._moving = True
        return observation

    def place_bodies(self) -> None:
        """Run the domain's own reset while time stands still: it draws a goal and puts the bodies in place."""
        self._moving = False
        self.reset_model()

    def do_simulation(self, ctrl: Any, n_frames: int) -> None:  # noqa: ANN401 (as the stock class declares it)
        """Apply ``ctrl (2,)`` for ``n_frames`` steps of the physics, unless time stands still."""
        if self._moving:
            self._step_mujoco_simulation(ctrl, n_frames)

    @property
    def tcp_center(self) -> NDArray[np.float64]:
        """The point ``(3,)`` between the two fingers, in m."""
        right, left = self.data.site_xpos[self._fingers, :]
        return (right + left) / 2.0

    def touching_object(self, object_geom_id: int) -> bool:
        """Return whether each of the two pads presses on an object with a positive total contact force."""
        contact, force = self.data.contact, self.data.efc_force
        pairs = list(zip(contact.geom.tolist(), contact.efc_address.tolist(), strict=True))
        return all(
            sum(force[address] for geoms, address in pairs if pad in geoms and object_geom_id in geoms) > 0
            for pad in self._pads
        )

    def _get_curr_obs_combined_no_goal(self) -> NDArray[np.float64]:
        """Return one frame ``(18,)``: hand, gripper opening, and a position and a quaternion for each object."""
        right, left = self.data.xpos[self._claws, :]
        apart = right - left
        frame = np.zeros(_FRAME_SIZE)
        frame[:3] = self.get_endeff_pos()
        frame[3] = min(max(np.sqrt(apart.dot(apart)) / 0.1, 0.0), 1.0)
        positions, quaternions = self._get_pos_objects(), self._get_quat_objects()
        for i in range(len(positions) // 3):
            start = 4 + 7 * i
            frame[start : start + 3] = positions[3 * i : 3 * i + 3]
            frame[start + 3 : start + 7] = quaternions[4 * i : 4 * i + 4]
        return frame


def build_simulator(domain: str, reward_version: str = "v2", **rendering: Any) -> Simulator:  # noqa: ANN401
    """Return the simulator of a domain with its goal visible; it needs a goal before its first reset.

    Args:
        domain: One of the 50 names.
        reward_version: ``"v1"`` or ``"v2"``.
        rendering: The keywords ``render_mode``, ``camera_name``, ``width`` and ``height`` of the stock class.
    """
    simulator = _simulator_class(domain)(reward_function_version=reward_version, **rendering)
    simulator._partially_observable = False
    del simulator.sawyer_observation_space  # cached while the goal was hidden
    simulator.observation_space = simulator.sawyer_observation_space
    simulator.seeded_rand_vec = True  # goals are drawn from simulator.np_random, never from the global generator
    simulator._set_task_called = True
    return simulator


def reset_to_goal(simulator: Simulator, goal: NDArray[np.float64]) -> NDArray[np.float64]:
    """Reset to a goal and return the observation ``(39,)``, as the stock ``set_task`` and ``reset`` do.

    Args:
        simulator: Changed in place.
        goal: ``(k,)``, what the domain randomises: positions of objects and goal, in m.
    """
    simulator._freeze_rand_vec = True
    simulator._last_rand_vec = goal.copy()
    observation, _ = simulator.reset()
    return observation


def draw_goal(simulator: Simulator) -> NDArray[np.float64]:
    """Draw a goal ``(k,)`` from ``simulator.np_random`` by the domain's own rules, rejections included."""
    simulator._freeze_rand_vec = False
    simulator.place_bodies()
    return np.array(simulator._last_rand_vec, dtype=np.float64)


@functools.lru_cache(maxsize=8)
def _compiled(path: str) -> mujoco.MjModel:
    """Return the compiled model of an XML file."""
    return mujoco.MjModel.from_xml_path(path)


@functools.cache
def _simulator_class(domain: str) -> type[Simulator]:
    """Return a domain's stock class under :class:`Simulator`, its quaternions by the direct formula."""
    stock = ALL_V3_ENVIRONMENTS[domain]
    direct = rebound(stock._get_quat_objects, Rotation=Rotation)
    return type(stock.__name__, (Simulator, stock), {"_get_quat_objects": direct, "__module__": __name__})
