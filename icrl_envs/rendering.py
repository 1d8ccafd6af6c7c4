"""Text and pictures of a process in a state; a process of your own is added by registering a function.

Example:
    @rendering.draw.register
    def draw_mine(process: MyProcess, state, axes) -> None:
        axes.plot(...)
"""

from functools import singledispatch
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.patches import Circle, Polygon, Rectangle

from icrl_envs.cartpole import CartPoleProcess
from icrl_envs.process import FiniteProcess, Process
from icrl_envs.rkhs import RKHSProcess

SIZE_INCHES = (4.8, 4.0)
DOTS_PER_INCH = 100
CURRENT = "#d1495b"  # the current state, in every picture
NEUTRAL = "#30343f"
VALUE_COLOURS = "viridis"


def image(process: Process[Any], state: Any) -> np.ndarray:  # noqa: ANN401 (the state of any process)
    """Return a picture ``(400, 480, 3)`` of bytes with the current state marked; no global Matplotlib state is used."""
    figure = Figure(figsize=SIZE_INCHES, dpi=DOTS_PER_INCH, layout="constrained")
    canvas = FigureCanvasAgg(figure)
    draw(process, state, figure.add_subplot())
    canvas.draw()
    return np.array(canvas.buffer_rgba())[..., :3].copy()


@singledispatch
def draw(process: object, state: Any, axes: Axes) -> None:  # noqa: ANN401
    """Draw a process in a state: for processes unknown here, one bar for each component of the observation."""
    observation = process.observe(state)  # pyright: ignore[reportAttributeAccessIssue]
    axes.bar(np.arange(len(observation)), observation, color=CURRENT)
    axes.set(xlabel="component", ylabel="observation")


@singledispatch
def text(process: object, state: Any) -> str:  # noqa: ANN401
    """Return one line on a process in a state."""
    return f"state: {state}"


@text.register
def _(process: FiniteProcess, state: int) -> str:
    """Return the states in a row, the current one in brackets, and its value."""
    names = (f"[{s}]" if s == state else str(s) for s in range(process.num_states))
    return f"{' '.join(names)}   v({state}) = {process.values()[state]:.3f}"


@draw.register
def _(process: FiniteProcess, state: int, axes: Axes) -> None:
    """Draw the states on a circle, coloured by value, and transitions as arcs, the darker the likelier."""
    angles = np.pi / 2 - 2 * np.pi * np.arange(process.num_states) / process.num_states
    positions = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    v = process.values()
    _draw_transitions(process.transition_matrix, state, positions, axes)
    size = min(420.0, 9000.0 / process.num_states)
    nodes = axes.scatter(*positions.T, s=size, c=v, cmap=VALUE_COLOURS, zorder=3)
    axes.scatter(*positions[state], s=1.5 * size, facecolors="none", edgecolors=CURRENT, linewidths=3, zorder=4)
    if process.num_states <= 30:
        for s, (x, y) in enumerate(1.2 * positions):
            weight = "bold" if s == state else "normal"
            axes.text(x, y, str(s), ha="center", va="center", color=CURRENT if s == state else NEUTRAL, weight=weight)
    _colour_bar(nodes, axes)
    axes.set(xlim=(-1.35, 1.35), ylim=(-1.35, 1.35), aspect="equal", title=f"state {state}, value {v[state]:.3f}")
    axes.axis("off")


def _draw_transitions(P: np.ndarray, state: int, positions: np.ndarray, axes: Axes) -> None:
    """Draw each transition likelier than 0.01 between two states as an arc, those from the current one as arrows."""
    sources, targets = np.nonzero((P > 0.01) & ~np.eye(len(P), dtype=bool))
    begin, end = positions[sources, None], positions[targets, None]
    step = end - begin
    middle = (begin + end) / 2 + 0.15 * np.stack([-step[..., 1], step[..., 0]], axis=-1)
    t = np.linspace(0.0, 1.0, 20)[:, None]
    arcs = (1 - t) ** 2 * begin + 2 * t * (1 - t) * middle + t**2 * end  # quadratic Bézier curves
    alphas = 0.1 + 0.7 * P[sources, targets]
    axes.add_collection(LineCollection(list(arcs), colors=[(NEUTRAL, alpha) for alpha in alphas], linewidths=1.0))
    for target in targets[sources == state]:
        arrow = {"arrowstyle": "-|>", "connectionstyle": "arc3,rad=-0.15", "color": CURRENT, "shrinkB": 9}
        (x, y), origin = positions[target], positions[state]
        axes.annotate("", (x, y), tuple(origin), arrowprops=arrow | {"lw": 0.8 + 2 * P[state, target]})


@draw.register
def _(process: RKHSProcess, state: np.ndarray, axes: Axes) -> None:
    """Draw the value over the first coordinate, or the first two, the others held where the state is."""
    reach = 3.5 * process.stationary_scale
    grid = np.linspace(-reach, reach, 121)
    if process.dim == 1:
        v = process.values(state[None])[0]
        axes.plot(grid, process.values(grid[:, None]), color=NEUTRAL)
        axes.plot(process.centers[:, 0], process.values(process.centers), "|", color=NEUTRAL, markersize=12)
        axes.plot(state[0], v, "o", color=CURRENT, markersize=11)
        axes.set(xlabel="state s", ylabel="value v(s)", title=f"v({state[0]:.2f}) = {v:.3f}", xlim=(-reach, reach))
        return
    states = np.broadcast_to(state, (len(grid) ** 2, process.dim)).copy()
    states[:, :2] = np.stack(np.meshgrid(grid, grid), axis=-1).reshape(-1, 2)
    heights = process.values(states).reshape(len(grid), len(grid))
    _colour_bar(axes.pcolormesh(grid, grid, heights, cmap=VALUE_COLOURS, shading="auto"), axes)
    axes.plot(state[0], state[1], "o", color=CURRENT, markeredgecolor="white", markersize=11)
    axes.set(xlabel="s₁", ylabel="s₂", title="value at the state's other coordinates" if process.dim > 2 else "value")
    axes.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal")


@draw.register
def _(process: CartPoleProcess, state: np.ndarray, axes: Axes) -> None:
    """Draw the cart and the pole to scale, in metres, with the track's ends marked."""
    x, _, angle, _ = state
    axes.axhline(0.0, color=NEUTRAL, linewidth=1)
    axes.vlines([-2.4, 2.4], -0.15, 0.15, color=NEUTRAL)
    axes.add_patch(Rectangle((x - 0.25, 0.0), 0.5, 0.3, color=NEUTRAL))
    along = np.array([np.sin(angle), np.cos(angle)])
    across = 0.04 * np.array([along[1], -along[0]])
    foot = np.array([x, 0.3])
    tip = foot + 2 * process.pole_half_length * along
    axes.add_patch(Polygon([foot - across, foot + across, tip + across, tip - across], color=CURRENT))
    axes.add_patch(Circle((x, 0.3), 0.06, color="white", zorder=3))
    axes.set(xlim=(-2.8, 2.8), ylim=(-0.5, 2.6), aspect="equal", xlabel="cart position (m)", yticks=[])
    axes.set_title(f"pole {np.degrees(angle):.1f}°, {process.gravity:.1f} m/s², ε = {process.epsilon:.2f}")
    axes.spines[["left", "top", "right"]].set_visible(False)


def _colour_bar(mappable: Any, axes: Axes) -> None:  # noqa: ANN401 (any Matplotlib mappable)
    """Put a slim value scale beside the axes."""
    figure = axes.figure
    figure.colorbar(mappable, ax=axes, label="value", shrink=0.7, pad=0.02)
