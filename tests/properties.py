"""Properties of random examples in one table: a few examples of each as a test, many of each by ``fuzz.py``."""

import warnings
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any

from hypothesis import HealthCheck, example, given, seed, settings
from hypothesis import strategies as st

from icrl_agents.divergence import DivergenceError, DivergenceWarning

EXAMPLES = 12
"""Examples of each property in an ordinary run of the tests."""
SUPPRESSED = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]


@dataclass
class Property:
    """Something that holds for every example of a strategy.

    Args:
        name: That of its test, without ``test_``.
        holds: Called with an example; fails where the property does not hold.
        strategy: What draws the examples.
        found: Examples on which it once did not hold; they run first, always.
        ran: Examples that ran when it was last checked.
    """

    name: str
    holds: Callable[[Any], None]
    strategy: st.SearchStrategy[Any]
    found: Sequence[Any] = ()
    ran: int = 0

    def check(self, examples: int = EXAMPLES, random_seed: int = 0) -> None:
        """Runs the property on random examples, the same ones for the same seed."""
        self.ran = 0

        @seed(random_seed + zlib.crc32(self.name.encode()))
        @settings(max_examples=examples, database=None, deadline=None, suppress_health_check=SUPPRESSED)
        @given(self.strategy)
        def checked(drawn: Any) -> None:
            self.ran += 1
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                warnings.simplefilter("ignore", DivergenceWarning)  # what diverges does so on every route
                self.holds(drawn)

        for each in self.found:
            checked = example(each)(checked)
        checked()


PROPERTIES: dict[str, Property] = {}


def of(strategy: st.SearchStrategy[Any], *found: Any) -> Callable[[Callable[[Any], None]], Callable[[], None]]:
    """Enters a property of the examples of ``strategy`` into the table, and makes it a test."""

    def enter(holds: Callable[[Any], None]) -> Callable[[], None]:
        known = Property(holds.__name__.removeprefix("test_"), holds, strategy, found)
        PROPERTIES[known.name] = known

        @wraps(holds)
        def test() -> None:
            known.check()

        del test.__wrapped__  # its signature has an argument, which pytest would take for a fixture
        return test

    return enter


def outcome(compute: Callable[[], Any]) -> Any:
    """What ``compute`` returns, or DivergenceError where it raises that."""
    try:
        return compute()
    except DivergenceError:
        return DivergenceError
