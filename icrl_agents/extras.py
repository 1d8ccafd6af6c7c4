"""Libraries that icrl can do without: imported where they are needed, with the line that installs them if missing."""

from __future__ import annotations

import importlib
from types import ModuleType


class MissingExtraError(ImportError):
    """A library of an optional extra cannot be imported."""


def import_extra(module: str, extra: str, purpose: str) -> ModuleType:
    """Returns a module of an optional library.

    Args:
        module: Its name.
        extra: The extra of icrl that installs it.
        purpose: What asks for it, as the subject of a sentence.

    Raises:
        MissingExtraError: If it cannot be imported, with the line that installs it.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtraError(
            f"{purpose} needs {module.split('.')[0]} ({error}); install it with: pip install 'icrl[{extra}]', "
            f"in a clone of the repository pip install '.[{extra}]'."
        ) from error
