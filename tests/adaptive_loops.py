"""What adaptive evaluators do, as slow loops: candidates fitted without each trajectory in turn, and their mixture."""

import itertools
import math

import numpy as np

from icrl_agents.adaptive.mixture import RIDGE
from icrl_agents.episode import Episode
from tests import oracles

GAMMA = 0.5
SCALES, DEPTHS = (0.5, 0.15), (1, 4)


def episodes(count=4, steps=12, seed=0, terminated=()):
    """Random walks on the line, whose reward depends on the place more finely than the default kernel sees."""
    rng = np.random.default_rng(seed)
    walks = [np.cumsum(rng.normal(scale=0.3, size=(steps + 1, 1)), axis=0) for _ in range(count)]
    return [Episode(x, np.sin(9 * x[:-1, 0]), i in terminated) for i, x in enumerate(walks)]


def rows_of(episode):
    x, last = episode.observations.tolist(), len(episode.rewards) - 1
    ended = [episode.terminated and k == last for k in range(last + 1)]
    return [
        (x[k], r, 0.0 if end else GAMMA, None if end else x[k + 1], k < last)
        for k, (r, end) in enumerate(zip(episode.rewards.tolist(), ended, strict=True))
    ]


def candidate_values(rows, queries):
    """One list per candidate: for each scale the deepest first."""
    found = []
    for scale in SCALES:
        by_depth = oracles.softmax_td(rows, oracles.laplace(scale), max(DEPTHS), queries)
        found += [[v[depth] for v in by_depth] for depth in sorted(DEPTHS, reverse=True)]
    return found


def fold_errors(walks):
    """δ and v − G of each candidate on each trajectory, fitted on the others."""
    for i, walk in enumerate(walks):
        seen = [row for other in walks[:i] + walks[i + 1 :] for row in rows_of(other)]
        rows = rows_of(walk)
        values = candidate_values(seen, [row[0] for row in rows])
        nexts = candidate_values(seen, [row[0] if row[3] is None else row[3] for row in rows])
        deltas = [
            [row[1] + row[2] * n - v for row, v, n in zip(rows, *of, strict=True)]
            for of in zip(values, nexts, strict=True)
        ]
        returns, missing = [0.0], [1.0]
        for row in reversed(rows):
            returns.append(row[1] + row[2] * returns[-1])
            missing.append(row[2] * missing[-1])
        complete = [(k, g) for k, (g, m) in enumerate(zip(returns[:0:-1], missing[:0:-1], strict=True)) if m <= 0.05]
        yield deltas, [[v[k] - g for k, g in complete] for v in values]


def slow_weights(walks, caution, return_weight):
    errors = list(fold_errors(walks))
    scales = [np.mean([np.mean(np.square(fold[which][0])) for fold in errors]) for which in (0, 1)]

    def losses(w):
        return [
            np.mean(np.square(w @ np.array(deltas))) / scales[0]
            + return_weight * np.mean(np.square(w @ np.array(returns))) / scales[1]
            for deltas, returns in errors
        ]

    count = len(SCALES) * len(DEPTHS)
    forms = sum(
        np.cov(deltas, bias=True) + np.outer(np.mean(deltas, 1), np.mean(deltas, 1)) for deltas, _ in errors
    ) / (len(errors) * scales[0]) + return_weight * sum(
        np.cov(r, bias=True) + np.outer(np.mean(r, 1), np.mean(r, 1)) for _, r in errors
    ) / (len(errors) * scales[1])
    best = enumerated(forms)
    default = np.eye(count)[0]
    bounds = {}
    for t in np.linspace(0, 1, 21):
        gains = np.subtract(losses(default + t * (best - default)), losses(default))
        bounds[t] = gains.mean() + caution * gains.std(ddof=1) / math.sqrt(len(gains))
    step = min(bounds, key=lambda t: bounds[t])
    return default + step * (best - default), step


def enumerated(form):
    """The minimum on the simplex by trying every support."""
    count = len(form)
    form = form + RIDGE * np.trace(form) / count * np.eye(count)
    found = []
    for size in range(1, count + 1):
        for support in map(list, itertools.combinations(range(count), size)):
            part = np.linalg.solve(form[np.ix_(support, support)], np.ones(size))
            w = np.zeros(count)
            w[support] = part / part.sum()
            if (w >= 0).all():
                found.append((w @ form @ w, w))
    return min(found, key=lambda pair: pair[0])[1]
