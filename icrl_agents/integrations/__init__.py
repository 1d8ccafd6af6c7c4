"""Bridges to libraries that icrl does not depend on; each module names the extra that installs its library."""
