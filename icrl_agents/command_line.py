"""The command ``icrl``: one subcommand per study."""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tyro

from icrl_agents.extras import MissingExtraError
from icrl_agents.studies.adapt.config import AdaptConfig
from icrl_agents.studies.beyond.config import BeyondConfig
from icrl_agents.studies.collect.config import CollectConfig
from icrl_agents.studies.control.config import ControlConfig
from icrl_agents.studies.evaluate.config import EvaluateConfig
from icrl_agents.studies.improve.config import ImproveConfig
from icrl_agents.studies.matrix.config import MatrixConfig
from icrl_agents.studies.pretrain.config import PretrainStudyConfig
from icrl_agents.studies.reproduce.config import ReproduceConfig
from icrl_agents.studies.rkhs.config import RKHSConfig
from icrl_agents.studies.temperature.config import TemperatureConfig
from icrl_agents.studies.transfer.config import TransferConfig
from icrl_agents.studies.verify.config import VerifyConfig
from icrl_agents.terminal import patient_output, warnings_as_lines


def transfer(config: TransferConfig) -> int:
    """Runs the transfer study; returns 0."""
    from icrl_agents.studies.transfer.run import run

    run(config)
    return 0


def adapt(config: AdaptConfig) -> int:
    """Runs the adaptation study; returns 0."""
    from icrl_agents.studies.adapt.run import run

    run(config)
    return 0


def temperature(config: TemperatureConfig) -> int:
    """Runs the kernel-temperature study; returns 0."""
    from icrl_agents.studies.temperature.run import run

    run(config)
    return 0


def matrix(config: MatrixConfig) -> int:
    """Runs the transfer-matrix study; returns 0."""
    from icrl_agents.studies.matrix.run import run

    run(config)
    return 0


def pretrain(config: PretrainStudyConfig) -> int:
    """Runs the pretraining study; returns 0."""
    from icrl_agents.studies.pretrain.run import run

    run(config)
    return 0


def verify(config: VerifyConfig) -> int:
    """Checks every theorem; returns 0 if all of them hold, 1 otherwise."""
    from icrl_agents.studies.verify.run import run

    return run(config)


def control(config: ControlConfig) -> int:
    """Runs the control study; returns 0."""
    from icrl_agents.studies.control.run import run

    run(config)
    return 0


def improve(config: ImproveConfig) -> int:
    """Improves noisy scripted policies; returns 0."""
    from icrl_agents.studies.improve.run import run

    run(config)
    return 0


def reproduce(config: ReproduceConfig) -> int:
    """Runs a finished study again; returns 0 if its rows are the same, 1 otherwise."""
    from icrl_agents.studies.reproduce.run import run

    return run(config, STUDIES)


def beyond(config: BeyondConfig) -> int:
    """Runs the study beyond MetaWorld; returns 0."""
    from icrl_agents.studies.beyond.run import run

    run(config)
    return 0


def rkhs(config: RKHSConfig) -> int:
    """Runs the RKHS study; returns 0."""
    from icrl_agents.studies.rkhs.run import run

    run(config)
    return 0


def collect(config: CollectConfig) -> int:
    """Collects episodes; returns 0."""
    from icrl_agents.studies.collect.run import run

    run(config)
    return 0


def evaluate(config: EvaluateConfig) -> int:
    """Evaluates a policy in any environment; returns 0."""
    from icrl_agents.studies.evaluate.run import run

    run(config)
    return 0


STUDIES: dict[str, tuple[type, Callable[[Any], int]]] = {
    "transfer": (TransferConfig, transfer),
    "adapt": (AdaptConfig, adapt),
    "temperature": (TemperatureConfig, temperature),
    "matrix": (MatrixConfig, matrix),
    "pretrain": (PretrainStudyConfig, pretrain),
    "verify": (VerifyConfig, verify),
    "control": (ControlConfig, control),
    "improve": (ImproveConfig, improve),
    "beyond": (BeyondConfig, beyond),
    "rkhs": (RKHSConfig, rkhs),
    "collect": (CollectConfig, collect),
    "evaluate": (EvaluateConfig, evaluate),
    "reproduce": (ReproduceConfig, reproduce),
}
"""Subcommand: its configuration, which imports no torch, and the function that runs it and returns the exit code."""
WHOLE = (CollectConfig, EvaluateConfig, VerifyConfig)
"""Studies that keep nothing before they are done."""


@patient_output()
@warnings_as_lines()
def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the study's exit code, or 2 after one line about what was wrong.

    Args:
        arguments: Command-line arguments; default those of the process.
    """
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    if "" not in sys.path and not sys.flags.safe_path:
        sys.path.append("")  # the current folder, for module:Env-v0, as under python -m; behind all others
    config: Any = None
    try:
        config = parse(arguments)
        study = next(study for kind, study in STUDIES.values() if kind is type(config))
        with _own_style():
            code = study(config)
        print(end="", flush=True)
        return code
    except (ValueError, TypeError, OSError, MissingExtraError) as error:
        print(f"icrl: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and not re.search("out of memory|allocate memory", str(error)):
            raise
        said = " ".join(str(error).split())
        print(f"icrl: there is not enough memory; take smaller numbers ({said}).", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"icrl: interrupted; {_after_interruption(config)}.", file=sys.stderr)
        return 130


@contextlib.contextmanager
def _own_style() -> Iterator[None]:
    """Has figures drawn by Matplotlib's own settings, not by the user's, which may ask for LaTeX or a notebook."""
    backend = os.environ.pop("MPLBACKEND", None)  # that of a notebook may be missing here, which is an error on import
    try:
        import matplotlib

        with matplotlib.rc_context():
            matplotlib.rcdefaults()
            yield
    finally:
        if backend is not None:
            os.environ["MPLBACKEND"] = backend


def _after_interruption(config: Any) -> str:  # noqa: ANN401 - one of the configurations in STUDIES, or None
    """What is left of a study, and what its command does then."""
    if config is None or isinstance(config, WHOLE) or (isinstance(config, ReproduceConfig) and config.out is None):
        return "nothing is kept, and the same command begins anew"
    return "what is finished is kept, and the same command goes on with it"


def _at_home(word: str) -> str:
    """``--out=~/x`` with the home folder, which a shell leaves alone there, and ``~/x``, where no shell was asked."""
    option, sign, value = word.partition("=")
    if word.startswith("~/"):
        return os.path.expanduser(word)
    return f"{option}{sign}{os.path.expanduser(value)}" if option[:2] == "--" else word


def parse(arguments: Sequence[str]) -> Any:  # noqa: ANN401 - one of the configurations in STUDIES
    """Returns the configuration that the arguments spell.

    Raises:
        SystemExit: After ``--help``.
        ValueError: If the arguments are wrong; the message is one line.
    """
    options = [word.partition("=")[0].replace("_", "-").replace("--no-", "--") for word in arguments]
    if twice := [option for option in dict.fromkeys(options) if option[:2] == "--" and options.count(option) > 1]:
        raise ValueError(f"{twice[0]} is given twice; give it once, with all of its values.")
    # The title of the parser's error box, its rules and its pointers to the help are left out of the line.
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            return tyro.extras.subcommand_cli_from_dict(
                {name: kind for name, (kind, _) in STUDIES.items()},
                prog="icrl",
                description="In-context policy evaluation: studies that end in a table, rows and figures.",
                args=[_at_home(word) for word in arguments],
            )
    except SystemExit as exit_:
        if exit_.code == 0:
            raise
    # Terminals without Unicode get no box, but the title and a rule as two lines.
    lines = [line.strip("│ ") for line in said.getvalue().splitlines() if not line.startswith(("╭", "╰"))]
    boxed = "╭" in said.getvalue()
    told = [line for line in lines[0 if boxed else 2 :] if line and line.strip("─-")]
    told = [line for line in told if not line.startswith(("For full helptext", "Argument helptext"))]
    command = " ".join(["icrl", *(name for name in arguments[:1] if name in STUDIES)])
    message = re.sub(r"^Error parsing \w+Config: ", "", " ".join(told))
    raise ValueError(f"{message} (see {command} --help)")
