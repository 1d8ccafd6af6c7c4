"""Logged data: episodes in npz files and in Minari datasets."""

from icrl_agents.datasets.minari import minari_episodes
from icrl_agents.datasets.minari_writing import write_minari_dataset
from icrl_agents.datasets.npz import load_episodes, save_episodes

__all__ = ["minari_episodes", "write_minari_dataset", "load_episodes", "save_episodes"]
