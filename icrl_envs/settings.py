"""Settings of an environment, which are what they were when it was made."""

from typing import Any


class Setting:
    """An attribute that may be set once, when the environment is made: later it would say what is not so.

    Raises:
        AttributeError: If it is set again.
    """

    def __set_name__(self, owner: type, name: str) -> None:
        """Take the name."""
        self._name = name

    def __get__(self, env: Any, owner: type | None = None) -> Any:  # noqa: ANN401 (of whatever type it was set to)
        """Return what it was set to."""
        if env is None:
            return self
        try:
            return vars(env)[self._name]
        except KeyError:
            raise AttributeError(f"{type(env).__name__} has no {self._name} yet") from None

    def __set__(self, env: Any, value: Any) -> None:  # noqa: ANN401
        """Set it for good."""
        if self._name in vars(env):
            raise AttributeError(
                f"{self._name}: is fixed when the environment is made, got {value!r} afterwards; make another one, or "
                "go over to another task with reset(options={'task_seed': k})."
            )
        vars(env)[self._name] = value
