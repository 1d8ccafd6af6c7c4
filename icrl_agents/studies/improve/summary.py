"""What came out before and after, and the table of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from icrl_agents.studies.improve.training import CRITIC, RETURNS, SCRIPT, SHUFFLED, Row
from icrl_agents.studies.transfer.summary import Estimate, mean_estimate

NAMES = {
    (SCRIPT, True): "before",
    (CRITIC, True): "in-context critic",
    (RETURNS, True): "returns, no critic",
    (SHUFFLED, True): "shuffled advantages",
    (SCRIPT, False): "before, without noise",
    (CRITIC, False): "in-context critic, without noise",
}
"""Policies by where their advantages came from and whether they are evaluated with noise, in the table's order."""
_HEADER = ("domain", "policy", "success", "reward per step", "gain in reward", "better", "gains x, y, z, gripper")


class Summary:
    """Rows of a study, asked for estimates.

    Args:
        rows: All rows.
    """

    def __init__(self, rows: Iterable[Row]) -> None:
        self._cells: dict[tuple[str, str, bool], list[Row]] = {}
        for row in sorted(rows, key=lambda row: row.seed):
            self._cells.setdefault((row.domain, row.policy, row.sigma > 0), []).append(row)
        self.domains = list(dict.fromkeys(domain for domain, _, _ in self._cells))

    def numbers(self, domain: str, policy: str, noisy: bool, of: Callable[[Row], float]) -> np.ndarray:
        """Something of each seed, ``(seeds,)``, in the order of the seeds."""
        return np.array([of(row) for row in self._cells[domain, policy, noisy]])

    def success(self, domain: str, policy: str, noisy: bool = True) -> Estimate:
        """Success rate: mean over seeds."""
        return mean_estimate(self.numbers(domain, policy, noisy, lambda row: row.success).tolist())

    def reward(self, domain: str, policy: str, noisy: bool = True) -> Estimate:
        """Reward per step: mean over seeds."""
        return mean_estimate(self.numbers(domain, policy, noisy, lambda row: row.reward).tolist())

    def differences(self, domain: str, policy: str, noisy: bool = True) -> np.ndarray:
        """Reward per step minus that of the script with the same goals and the same noise, ``(seeds,)``."""
        rewards = [self.numbers(domain, name, noisy, lambda row: row.reward) for name in (policy, SCRIPT)]
        return rewards[0] - rewards[1]

    def table(self) -> str:
        """One line per domain and policy."""
        lines = [list(_HEADER)]
        lines += [self._line(domain, *key) for domain in self.domains for key in NAMES]
        widths = [max(len(line[i]) for line in lines) for i in range(len(_HEADER))]
        aligned = ("  ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)) for line in lines)
        return "\n".join(line.rstrip() for line in aligned)

    def _line(self, domain: str, policy: str, noisy: bool) -> list[str]:
        gained = self.differences(domain, policy, noisy)
        rows = self._cells[domain, policy, noisy]
        gains = np.exp(np.log([[r.gain_x, r.gain_y, r.gain_z, r.gain_gripper] for r in rows]).mean(0))
        compared = policy != SCRIPT
        return [
            domain,
            NAMES[policy, noisy],
            str(self.success(domain, policy, noisy)),
            str(self.reward(domain, policy, noisy)),
            str(mean_estimate(gained.tolist())) if compared else "",
            f"{(gained > 0).sum()}/{len(gained)}" if compared else "",
            ", ".join(f"{gain:.2g}" for gain in gains) if compared else "",
        ]
