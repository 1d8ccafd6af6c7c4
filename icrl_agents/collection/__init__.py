"""Collection: environments run under a policy, and what they did kept as episodes or as a context."""

from icrl_agents.collection.collect import collect, collect_episodes

__all__ = ["collect", "collect_episodes"]
