"""What ``pretrain`` is given, and what it does not depend on."""

import dataclasses
import json
import threading

import pytest
import safetensors.torch
import torch

from icrl_agents import PretrainConfig, pretrain
from icrl_agents.pretraining import loop, progress
from icrl_agents.studies.pretrain.config import PretrainStudyConfig

CONFIG = PretrainConfig(
    steps=7, num_states=4, context_length=8, num_layers=3, tasks=4, evaluation_tasks=4, evaluate_every=7
)


@pytest.mark.parametrize("switch", ["representable", "tied", "expectations", "decay"])
@pytest.mark.parametrize("word", ["False", "no", 0, None])
def test_a_switch_is_a_bool(switch, word):
    with pytest.raises(TypeError, match=f"{switch} must be True or False; got"):
        PretrainConfig(**{switch: word})


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"save_every": 0}, ValueError, "save_every must be an integer ≥ 1"),
        ({"until": -1}, ValueError, "until must be an integer ≥ 0"),
        ({"until": 2.5}, TypeError, "until must be an integer ≥ 0"),
        ({"folder": 3}, TypeError, "folder: expected a path or None"),
    ],
)
def test_arguments_are_named(arguments, error, message, tmp_path):
    with pytest.raises(error, match=message):
        pretrain(CONFIG, **{"folder": tmp_path, **arguments})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "1"}, r"not a whole state of training \(it is of format 1, this version goes on with 2\)"),
        ({"config": json.dumps({**dataclasses.asdict(CONFIG), "old": 3})}, "whose old is 3 and not None"),
    ],
    ids=["format", "setting"],
)
def test_the_state_of_another_versions_training_is_not_gone_on_with(change, message, tmp_path):
    pretrain(CONFIG, folder=tmp_path, until=2)
    with safetensors.safe_open(tmp_path / progress.STATE, framework="pt") as file:
        header, tensors = {**file.metadata(), **change}, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    header["sha256"] = progress._digest({k: v for k, v in header.items() if k != "sha256"}, tensors)
    safetensors.torch.save_file(tensors, tmp_path / progress.STATE, metadata=header)
    with pytest.raises(ValueError, match=message):
        pretrain(CONFIG, folder=tmp_path)


def test_a_folder_that_another_training_is_writing_into_is_refused_and_left_as_it_is(tmp_path):
    begun, over = threading.Event(), threading.Event()

    def measured(*_):
        begun.set()
        assert over.wait(60)

    def first():
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(loop, "_record", measured)
            pretrain(CONFIG, folder=tmp_path, until=3)

    thread = threading.Thread(target=first)
    thread.start()
    assert begun.wait(60)
    with pytest.raises(ValueError, match="folder: another training is writing into"):
        pretrain(dataclasses.replace(CONFIG, seed=1), folder=tmp_path, until=2)
    assert list(tmp_path.iterdir()) == []
    over.set()
    thread.join()
    assert len(pretrain(CONFIG, folder=tmp_path, until=3).losses) == 3
    with pytest.raises(ValueError, match="another configuration, whose seed is 0 and not 1"):
        pretrain(dataclasses.replace(CONFIG, seed=1), folder=tmp_path, until=2)


def test_configurations_name_a_device_and_a_seed_that_generators_take():
    with pytest.raises(TypeError, match="device: expected the name of a torch device"):
        PretrainConfig(device=3)
    with pytest.raises(ValueError, match="seed must be an integer in"):
        PretrainConfig(seed=2**70)


def test_linear_layers_do_not_begin_where_nothing_trains():
    with pytest.raises(ValueError, match="initial_scale: expected one above 0 for form 'linear'"):
        PretrainConfig(form="linear", initial_scale=0.0)
    PretrainConfig(initial_scale=0.0)


def test_losses_are_whole_and_depend_on_no_default_nor_on_gradients_being_off():
    expected = pretrain(CONFIG)
    assert expected.losses.dtype == torch.float64
    assert not torch.equal(expected.losses, expected.losses.float().double())
    try:
        torch.set_default_dtype(torch.float64)
        assert torch.equal(pretrain(CONFIG).losses, expected.losses)
    finally:
        torch.set_default_dtype(torch.float32)
    for off in (torch.no_grad(), torch.inference_mode()):
        with off:
            found = pretrain(CONFIG)
        assert torch.equal(found.losses, expected.losses)
        assert found.rows[-1].value_error == expected.rows[-1].value_error


@pytest.mark.parametrize("options", [{"num_states": 50}, {"features": "random"}])
def test_what_cartpole_does_not_have_is_refused(options):
    (name,) = options
    with pytest.raises(ValueError, match=f"{name}: expected none for cartpole"):
        PretrainStudyConfig(preset="cartpole", **options)
    assert PretrainStudyConfig(preset="boyan", **{name: 15 if name == "num_states" else "random"}).trainings()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"horizon": 7}, "horizon: expected loss 'mc' beside it, whose returns it cuts, got 7"),
        ({"chain": "cartpole", "num_states": 5}, "num_states: expected none for cartpole"),
        ({"chain": "cartpole", "features": "random"}, "features: expected none for cartpole"),
        ({"chain": "cartpole", "evaluation_tasks": 1}, "evaluation_tasks must be an integer ≥ 2"),
        ({"form": "linear", "algorithm": "average_reward", "gamma": 0.5}, "gamma: expected none for average_reward"),
        (
            {"form": "linear", "algorithm": "average_reward", "representable": True, "gamma": 0.0},
            "gamma: expected one above 0 for average_reward",
        ),
    ],
)
def test_what_would_change_nothing_or_be_compared_with_itself_is_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        PretrainConfig(**settings)
