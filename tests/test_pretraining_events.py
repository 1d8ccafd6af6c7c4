"""TensorBoard events of pretraining, with the package and without it."""

import sys

import pytest

from icrl_agents import PretrainConfig, pretrain
from icrl_agents.command_line import main
from icrl_agents.pretraining.events import SCALARS

TINY = PretrainConfig(num_states=4, context_length=12, num_layers=3, tasks=4, steps=4, evaluate_every=2)


@pytest.fixture
def absent(monkeypatch):
    for name in ("tensorboard", "torch.utils.tensorboard"):
        monkeypatch.setitem(sys.modules, name, None)


def test_without_the_package_one_line_says_what_to_install(absent, tmp_path, capsys):
    with pytest.raises(ValueError, match="pip install tensorboard"):
        pretrain(TINY, folder=tmp_path / "one", tensorboard=True)
    assert main(["pretrain", "--tensorboard", "--out", str(tmp_path / "two")]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "pip install tensorboard" in said
    assert list(tmp_path.iterdir()) == []
    assert len(pretrain(TINY, folder=tmp_path / "three").rows) == 3  # nobody else needs it


def test_events_hold_the_measurements_and_an_interrupted_training_goes_on(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with pytest.raises(ValueError, match="folder: expected one"):
        pretrain(TINY, tensorboard=True)
    for before in (True, False):  # whether the interrupted training wrote any
        place = tmp_path / str(before)
        pretrain(TINY, folder=place, until=3, tensorboard=before)
        for _ in ("goes on", "is done already"):
            rows = pretrain(TINY, folder=place, tensorboard=True).rows
            events = EventAccumulator(str(place)).Reload()
            for name in set(SCALARS) - {"return_error"}:  # of CartPole
                found = [(event.step, event.value) for event in events.Scalars(name)]
                expected = [(row.step, pytest.approx(getattr(row, name), rel=1e-6)) for row in rows]
                assert found == (expected[1:] if name == "loss" else expected)  # no loss before the first step
