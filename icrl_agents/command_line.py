"""The command ``icrl``: one subcommand per study."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Sequence

import tyro

from icrl_agents.studies.transfer.config import TransferConfig


def transfer(config: TransferConfig) -> None:
    """Runs the transfer study."""
    from icrl_agents.studies.transfer.run import run

    run(config)


STUDIES = {TransferConfig: transfer}


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code: 0, or 2 after one line about what was wrong.

    Args:
        arguments: Command-line arguments; default those of the process.
    """
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    try:
        config = parse(arguments)
        STUDIES[type(config)](config)
    except (ValueError, TypeError, OSError) as error:
        print(f"icrl: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("icrl: interrupted; what was collected is kept in the cache.", file=sys.stderr)
        return 130
    return 0


def parse(arguments: Sequence[str]) -> TransferConfig:
    """Returns the configuration that the arguments spell.

    Raises:
        SystemExit: After ``--help``.
        ValueError: If the arguments are wrong; the message is one line.
    """
    # The title of the parser's error box, its rules and its pointers to the help are left out of the line.
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            return tyro.extras.subcommand_cli_from_dict(
                {"transfer": TransferConfig},
                prog="icrl",
                description="In-context policy evaluation: studies that end in a table, rows and figures.",
                args=list(arguments),
            )
    except SystemExit as exit_:
        if exit_.code == 0:
            raise
    lines = [line.strip("│ ") for line in said.getvalue().splitlines() if line.startswith("│")]
    told = [line for line in lines if not line.startswith(("─", "For full helptext", "Argument helptext"))]
    command = "icrl transfer" if "transfer" in arguments[:1] else "icrl"
    raise ValueError(f"{' '.join(told)} (see {command} --help)")
