"""Policy evaluation as plain loops over lists of floats: slow, obvious, and independent of what it checks.

A context is a list of rows (x, R, γ, x′, linked): a state, its reward, discount and next state (None where γ = 0),
and whether the next row continues the trajectory. Every sweep returns v_ℓ(query) for ℓ = 0 … L, one list per query.
"""

import math


def dot(x, y):
    return sum(a * b for a, b in zip(x, y, strict=True))


def distance(x, y):
    return math.sqrt(sum((a - b) ** 2 for a, b in zip(x, y, strict=True)))


def times(matrix, vector):
    return [dot(row, vector) for row in matrix]


def plus(x, y, factor=1.0):
    return [a + factor * b for a, b in zip(x, y, strict=True)]


def identity(dim):
    return [[float(i == j) for j in range(dim)] for i in range(dim)]


# Scores g(query, key) = log κ(query, key), and kernels.
def rbf(length_scale):
    return lambda x, y: -((distance(x, y) / length_scale) ** 2) / 2


def laplace(length_scale):
    return lambda x, y: -distance(x, y) / length_scale


def exponential(temperature):
    return lambda x, y: dot(x, y) / temperature


def bilinear(matrix):
    return lambda x, y: dot(x, times(matrix, y))


def indicator(x, y):
    return 0.0 if x == y else -math.inf


def quadratic(x, y):
    return math.log(1.0 + dot(x, y) ** 2)


def exp_of(score):
    return lambda x, y: math.exp(score(x, y))


def rectified_dot(x, y):
    return max(0.0, dot(x, y))


def median_distance(states):
    """The (lower) median distance between the distinct states."""
    distinct = [x for i, x in enumerate(states) if x not in states[:i]]
    positive = sorted(distance(x, y) for i, x in enumerate(distinct) for y in distinct[:i])
    return positive[(len(positive) - 1) // 2] if positive else 1.0


# Sweeps in the space of values: each state, next state and query is moved by itself.
def softmax_td(rows, score, sweeps, queries, step_size=1.0):
    def weigh(x):
        scores = [score(x, row[0]) for row in rows]
        if max(scores) == -math.inf:
            return [0.0] * len(rows)
        weights = [math.exp(s - max(scores)) for s in scores]
        return [w / sum(weights) for w in weights]

    return _sweep_values(rows, weigh, sweeps, queries, step_size)


def kernel_td(rows, kernel, sweeps, queries, step_size="auto"):
    if step_size == "auto":
        step_size = 1 / max(sum(abs(kernel(x, row[0])) for x, *_ in rows) for row in rows)
    return _sweep_values(rows, lambda x: [kernel(x, row[0]) for row in rows], sweeps, queries, step_size)


def _sweep_values(rows, weigh, sweeps, queries, step_size):
    n = len(rows)
    nexts = [x if x_next is None else x_next for x, _, _, x_next, _ in rows]
    weights = [weigh(x) for x in [row[0] for row in rows] + nexts + queries]
    values = [0.0] * len(weights)
    history = [values[2 * n :]]
    for _ in range(sweeps):
        errors = [reward + gamma * values[n + k] - values[k] for k, (_, reward, gamma, _, _) in enumerate(rows)]
        values = [v + step_size * dot(w, errors) for v, w in zip(values, weights, strict=True)]
        history.append(values[2 * n :])
    return [list(column) for column in zip(*history, strict=True)]


# Sweeps in the space of weights: v(x) = wᵀx.
def linear_td(rows, sweeps, queries, step_size="auto", matrix=None, lambda_=0.0):
    return _sweep_weights(rows, [x for x, *_ in rows], traces(rows, lambda_), sweeps, queries, step_size, matrix)


def residual_gradient(rows, sweeps, queries, step_size="auto", matrix=None):
    differences = [x if x_next is None else plus(x, x_next, -gamma) for x, _, gamma, x_next, _ in rows]
    return _sweep_weights(rows, differences, differences, sweeps, queries, step_size, matrix)


def average_reward_td(rows, sweeps, queries, step_size="auto", matrix=None, reward_step_size=1.0):
    states = [x for x, *_ in rows]
    continuing = [(x, reward, 1.0, x_next, linked) for x, reward, _, x_next, linked in rows]
    return _sweep_weights(continuing, states, states, sweeps, queries, step_size, matrix, reward_step_size)


def traces(rows, lambda_):
    """e_k = x_k + γ_{k−1} λ e_{k−1} inside a trajectory."""
    found = []
    for k, (x, *_) in enumerate(rows):
        carried = k > 0 and rows[k - 1][4]
        found.append(plus(x, found[-1], lambda_ * rows[k - 1][2]) if carried else x)
    return found


def _sweep_weights(rows, readers, directions, sweeps, queries, step_size, matrix, reward_step_size=0.0):
    dim, n = len(rows[0][0]), len(rows)
    moves = [times(matrix or identity(dim), e) for e in directions]
    if step_size == "auto":
        largest = max(sum(abs(dot(reader, move)) for reader in readers) for move in moves)
        step_size = n / largest if largest > 0 else n
    w, average, history = [0.0] * dim, 0.0, [[0.0] * len(queries)]
    for _ in range(sweeps):
        errors = [
            reward - average - dot(w, x) + (0.0 if x_next is None else gamma * dot(w, x_next))
            for x, reward, gamma, x_next, _ in rows
        ]
        for error, move in zip(errors, moves, strict=True):
            w = plus(w, move, step_size / n * error)
        average += reward_step_size / n * sum(errors)
        history.append([dot(w, query) for query in queries])
    return [list(column) for column in zip(*history, strict=True)]


def tabular_lstd(rows, states):
    """The certainty-equivalent values: every state's mean TD error is 0. All of ``states`` must have been left."""
    index = {tuple(state): i for i, state in enumerate(states)}
    system = [[0.0] * (len(states) + 1) for _ in states]
    for x, reward, gamma, x_next, _ in rows:
        equation = system[index[tuple(x)]]
        equation[index[tuple(x)]] += 1.0
        equation[-1] += reward
        if x_next is not None:
            equation[index[tuple(x_next)]] -= gamma
    return solve(system)


def solve(system):
    """Gauss–Jordan elimination with pivoting on the rows [A | b]; x with A x = b."""
    rows = [list(row) for row in system]
    for i in range(len(rows)):
        pivot = max(range(i, len(rows)), key=lambda k: abs(rows[k][i]))
        rows[i], rows[pivot] = rows[pivot], rows[i]
        rows[i] = [entry / rows[i][i] for entry in rows[i]]
        for k in range(len(rows)):
            if k != i:
                rows[k] = plus(rows[k], rows[i], -rows[k][i])
    return [row[-1] for row in rows]


# The papers' layers, matrix by matrix: Z is a list of d + 3 rows [φ; R; u; v] over n + 1 columns.
def matmul(left, right):
    columns = list(zip(*right, strict=True))
    return [[dot(row, column) for column in columns] for row in left]


def add(*matrices):
    return [[sum(entries) for entries in zip(*rows, strict=True)] for rows in zip(*matrices, strict=True)]


def prompt(states, rewards):
    """Z₀ of one trajectory S_0 … S_n, R_1 … R_n; the last column is the query, without a reward."""
    memory = [[*rewards, 0.0], [0.0] * len(states), [0.0] * len(states)]
    return [list(row) for row in zip(*states, strict=True)] + memory


def softmax_over_keys(Z, A):
    """W, each column a softmax over the keys 0 … n−1 of Zᵀ A Z; the query column is no key."""
    scores = matmul(list(zip(*Z, strict=True)), matmul(A, Z))
    weights = [[math.exp(score) for score in row] for row in scores[:-1]] + [[0.0] * len(scores)]
    totals = [sum(column) for column in zip(*weights, strict=True)]
    return [[w / total for w, total in zip(row, totals, strict=True)] for row in weights]


def dual_head_layers(Z, B, alpha, gamma, depth):
    """Z ← Z + V₁ Z W + V₂ Z W Π, with Π moving column j + 1 to column j."""
    size, columns = len(Z), len(Z[0])
    A = [[*row, 0.0, 0.0, 0.0] for row in B] + [[0.0] * size for _ in range(3)]
    blank = [[0.0] * size for _ in range(size - 2)]
    signs = [0.0] * (size - 3) + [1.0, 1.0, -1.0]
    V1 = [*blank, [0.0] * size, [alpha * sign for sign in signs]]
    V2 = [*blank, [alpha * gamma * sign for sign in signs], [0.0] * size]
    shift = [[float(i == j + 1) for j in range(columns)] for i in range(columns)]
    layers = [Z]
    for _ in range(depth):
        W = softmax_over_keys(Z, A)
        Z = add(Z, matmul(matmul(V1, Z), W), matmul(matmul(matmul(V2, Z), W), shift))
        layers.append(Z)
    return layers


def temporal_shift_layers(Z, B, alpha, gamma, depth):
    """Z ← Z + V₁ Z W, then row u ← γ · (row v moved one column to the left)."""
    size = len(Z)
    A = [[*row, 0.0, 0.0, 0.0] for row in B] + [[0.0] * size for _ in range(3)]
    V1 = [[0.0] * size for _ in range(size - 1)] + [[0.0] * (size - 3) + [alpha, alpha, -alpha]]
    layers = [Z]
    for _ in range(depth):
        Z = add(Z, matmul(matmul(V1, Z), softmax_over_keys(Z, A)))
        Z = [*Z[:-2], [gamma * v for v in Z[-1][1:]] + [0.0], Z[-1]]
        layers.append(Z)
    return layers


# Errors of values.
def weighted_mean(numbers, weights):
    return dot(numbers, weights) / sum(weights)


def msve(values, targets, weights):
    return weighted_mean([(v - t) ** 2 for v, t in zip(values, targets, strict=True)], weights)


def centred_msve(values, targets, weights):
    errors = [v - t for v, t in zip(values, targets, strict=True)]
    offset = weighted_mean(errors, weights)
    return weighted_mean([(error - offset) ** 2 for error in errors], weights)
