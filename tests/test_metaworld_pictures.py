"""Pictures, in processes of their own: OpenGL is chosen once per process."""

import ctypes.util
import os
import subprocess
import sys

import gymnasium as gym
import numpy as np
import pytest

from icrl_envs.metaworld.env import MetaWorldEnv

needs_egl = pytest.mark.skipif(ctypes.util.find_library("EGL") is None, reason="needs libegl1 and libgl1-mesa-dri")

UPRIGHT = """
import mujoco
import numpy as np
from icrl_envs.metaworld.env import MetaWorldEnv

def blue_centre(env):
    pixels = env.render().astype(int)
    assert pixels.shape == (160, 240, 3)
    blue = (pixels[..., 2] > 120) & (pixels[..., 2] > pixels[..., 0] + 60) & (pixels[..., 2] > pixels[..., 1] + 60)
    assert blue.any()
    return np.argwhere(blue).mean(axis=0)

for camera in ("corner", "corner2", "corner3", "corner4", "behindGripper"):
    env = MetaWorldEnv("pick-place-v3", render_mode="rgb_array", camera=camera, width=240, height=160)
    env.reset(seed=0)
    model, data = env.simulator.model, env.simulator.data
    goal = model.site("goal")
    before = goal.pos.copy()
    row, _ = blue_centre(env)
    goal.pos[2] += 0.05
    mujoco.mj_forward(model, data)
    assert blue_centre(env)[0] < row, camera  # what is lifted goes up
    goal.pos[:] = before
    frame = data.camera(camera).xmat.reshape(3, 3)
    right = frame[:, 0] * np.sign(frame[2, 1])  # the right-hand side of whoever stands upright there
    mujoco.mj_forward(model, data)
    _, column = blue_centre(env)
    goal.pos[:] = before + 0.05 * right
    mujoco.mj_forward(model, data)
    assert blue_centre(env)[1] > column, camera  # and no mirror
    env.close()
    env.close()
"""

FORKED = """
import os
from icrl_envs.metaworld.env import MetaWorldEnv
env = MetaWorldEnv("push-v3", render_mode="rgb_array", width=64, height=64)
env.reset(seed=0)
env.render()
if os.fork() == 0:
    try:
        env.render()
    except RuntimeError as error:
        print(error, flush=True)
    os._exit(0)
os.wait()
assert env.render().shape == (64, 64, 3)
"""

UNCHANGED = """
import numpy as np
from icrl_envs.metaworld.mrp import MetaWorldMRPEnv
seen, unseen = (MetaWorldMRPEnv("push-v3", render_mode="rgb_array", width=64, height=64) for _ in range(2))
seen.reset(seed=0)
unseen.reset(seed=0)
for _ in range(20):
    assert seen.render().dtype == np.uint8
    assert seen.step(0)[0].tobytes() == unseen.step(0)[0].tobytes()
seen.close()
"""

NO_OPENGL = """
import gymnasium as gym
from icrl_envs.metaworld.mrp import MetaWorldMRPEnv
env = MetaWorldMRPEnv("reach-v3", render_mode="rgb_array")
env.reset(seed=0)
env.step(0)
for _ in range(3):
    try:
        env.render()
    except gym.error.DependencyNotInstalled as error:
        print(error)
env.step(0)
print("still runs")
"""


def run_with_opengl(code, platform):
    environment = {name: value for name, value in os.environ.items() if name not in ("DISPLAY", "WAYLAND_DISPLAY")}
    environment["MUJOCO_GL"] = platform
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert run.returncode == 0, run.stderr
    return run.stdout


@needs_egl
def test_pictures_are_the_right_way_up():
    run_with_opengl(UPRIGHT, "egl")


@needs_egl
def test_pictures_change_nothing():
    run_with_opengl(UNCHANGED, "egl")


@needs_egl
def test_a_fork_of_a_process_that_has_rendered_is_told_instead_of_hanging():
    out = run_with_opengl(FORKED, "egl")
    assert "OpenGL does not survive a fork" in out
    assert "context='spawn'" in out


def test_without_opengl_only_rendering_fails_and_says_what_to_install():
    out = run_with_opengl(NO_OPENGL, "glfw")  # there is no display
    assert out.count("apt-get install libegl1 libgl1-mesa-dri") == 3  # each time anew
    assert "MUJOCO_GL=egl" in out
    assert out.endswith("still runs\n")


def test_no_picture_without_a_render_mode_or_a_state():
    env = MetaWorldEnv("reach-v3")
    env.reset(seed=0)
    with pytest.warns(UserWarning, match="render_mode='rgb_array'"):
        assert env.render() is None
    with pytest.raises(gym.error.ResetNeeded, match=r"call reset\(\)"):
        MetaWorldEnv("reach-v3", render_mode="rgb_array").render()
    assert np.isfinite(env.step(np.zeros(4))[1])
