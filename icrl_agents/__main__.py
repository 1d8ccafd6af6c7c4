"""``python -m icrl_agents`` is the command ``icrl``."""

import sys

from icrl_agents.command_line import main

if __name__ == "__main__":
    sys.exit(main())
