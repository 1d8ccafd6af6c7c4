"""Checkpoints that are damaged, edited, mixed up or hostile are refused in words, and no code of theirs is run."""

import json
import math
import pickle
from pathlib import Path

import pytest
import safetensors.torch
import torch
from torch.nn.utils import prune

from icrl_agents import checkpoint, constructions, kernels
from icrl_agents.transformer import InContextTransformer


def save(folder, length_scale=0.5):
    constructions.kernel_td(kernels.RBF(length_scale), num_layers=6).save_pretrained(folder)
    return folder


def refuse(folder, message, error: type[Exception] = ValueError):
    with pytest.raises(error, match=message):
        InContextTransformer.from_pretrained(folder)


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_a_missing_file_is_named(name, tmp_path):
    save(tmp_path)
    (tmp_path / name).unlink()
    refuse(tmp_path, rf"{name}: not found; expected a folder that save_pretrained wrote", FileNotFoundError)
    refuse(tmp_path / "nowhere", r"nowhere.config\.json: not found", FileNotFoundError)


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_cut_anywhere_or_with_any_byte_changed_a_file_is_refused(name, tmp_path):
    save(tmp_path)
    path = tmp_path / name
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        refuse(tmp_path, r"model\.safetensors|config\.json")
    for position in range(len(whole)):
        changed = bytearray(whole)
        changed[position] ^= 1
        path.write_bytes(changed)
        refuse(tmp_path, r"model\.safetensors|config\.json")
    path.write_bytes(whole)
    InContextTransformer.from_pretrained(tmp_path)


def test_files_of_two_checkpoints_do_not_mix(tmp_path):
    save(tmp_path / "a", 0.5)
    save(tmp_path / "b", 0.6)
    (tmp_path / "b" / "model.safetensors").replace(tmp_path / "a" / "model.safetensors")
    refuse(tmp_path / "a", r"config\.json: its checksum is not that of model\.safetensors and itself")


def test_a_save_that_was_killed_between_its_two_files_is_the_new_checkpoint(tmp_path):
    old, new = save(tmp_path / "old", 0.5), save(tmp_path / "new", 0.6)
    (new / "model.safetensors").replace(old / "model.safetensors")
    (old / ".config.json.0.icrl-partial").write_text("cut sh")
    (new / "config.json").replace(old / ".config.json.1.icrl-partial")
    assert InContextTransformer.from_pretrained(old).state_dict()[SCALE] == 0.6
    (old / ".config.json.1.icrl-partial").unlink()
    refuse(old, r"config\.json: its checksum is not that of model\.safetensors and itself")


def test_two_saves_at_once_leave_one_of_the_two(tmp_path, monkeypatch):
    write = checkpoint.write_together

    def meanwhile(files):
        monkeypatch.setattr(checkpoint, "write_together", write)
        (weights, own), (config, structure) = files.items()
        write({weights: own})
        save(tmp_path, 0.6)
        write({config: structure})

    monkeypatch.setattr(checkpoint, "write_together", meanwhile)
    save(tmp_path, 0.5)
    assert InContextTransformer.from_pretrained(tmp_path).state_dict()[SCALE] == 0.5


def test_saves_that_never_leave_a_pair_say_so(tmp_path, monkeypatch):
    write = checkpoint.write_together
    monkeypatch.setattr(checkpoint, "write_together", lambda files: write({path: b"{}" for path in files}))
    with pytest.raises(OSError, match="is written into by others at the same time; save in another folder"):
        save(tmp_path)


def test_a_checkpoint_that_is_replaced_while_it_is_read_is_read_again(tmp_path, monkeypatch):
    save(tmp_path, 0.5)
    read, scales = Path.read_bytes, [0.6, 0.7]

    def meanwhile(path):
        content = read(path)
        if scales and path.name == "model.safetensors":
            with monkeypatch.context() as patch:
                patch.setattr(Path, "read_bytes", read)
                save(tmp_path, scales.pop(0))
        return content

    monkeypatch.setattr(Path, "read_bytes", meanwhile)
    assert InContextTransformer.from_pretrained(tmp_path).state_dict()[SCALE] == 0.7


def test_the_configuration_of_something_else_is_not_replaced(tmp_path):
    for content in ('{"study": "transfer", "settings": {}, "versions": {}}', '{"model_type": "gpt2"}'):
        (tmp_path / "config.json").write_text(content)
        with pytest.raises(ValueError, match=r"config\.json: is not of a transformer, and would be lost"):
            save(tmp_path)
        assert (tmp_path / "config.json").read_text() == content
        assert len(list(tmp_path.iterdir())) == 1
    (tmp_path / "config.json").write_text("cut sh")
    save(tmp_path)


def forge(folder, change_config=None, change_tensors=None):
    """Changes both files and puts the right checksum on them, as someone hostile would."""
    save(folder)
    config = json.loads((folder / "config.json").read_text())
    tensors = safetensors.torch.load_file(folder / "model.safetensors")
    if change_tensors:
        change_tensors(tensors)
    weights = safetensors.torch.save(tensors)
    if change_config:
        change_config(config)
    if isinstance(config, dict):
        config["sha256"] = checkpoint._digest(weights, config)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.safetensors").write_bytes(weights)
    return folder


SCALE, SENT = "blocks.0.attention.kernel.length_scale", "blocks.0.value_weights"
BAD_TENSORS = {
    "of another shape": ({SENT: torch.ones(4)}, r"config\.json.*value_weights: expected 3"),
    "not finite": ({SENT: torch.tensor([1.0, math.nan, -1.0])}, r"model\.safetensors: expected .*value_weights to be"),
    "integers": ({SENT: torch.tensor([1, 1, -1])}, r"model\.safetensors: expected .*value_weights to be floating"),
    "out of range": ({SCALE: torch.tensor(-0.5)}, r"config\.json.*length_scale: expected a positive"),
    "missing": ({SENT: None}, r"config\.json.*value_weights"),
    "missing with a default": ({SCALE: None}, r"model\.safetensors: expected .*length_scale of shape \(\), got None"),
    "too many": (
        {"blocks.1.value_weights": torch.ones(3)},
        r"safetensors: expected blocks\.1.* of shape None, got \(3,\)",
    ),
    "unknown": ({"blocks.0.attention.kernel.power": torch.ones(1)}, r"config\.json.*power"),
}


@pytest.mark.parametrize("name", BAD_TENSORS)
def test_weights_that_do_not_fit_are_refused_even_with_the_right_checksum(name, tmp_path):
    changes, message = BAD_TENSORS[name]

    def change(tensors):
        tensors.update(changes)
        for key in [key for key, tensor in changes.items() if tensor is None]:
            del tensors[key]

    refuse(forge(tmp_path, change_tensors=change), message)


BAD_CONFIGS = {
    "other format": (lambda c: c.update(format=2), r"config\.json: expected a transformer in format 1.* got 2"),
    "no format": (lambda c: c.pop("format"), r"format 1.* got None"),
    "no blocks": (lambda c: c.update(blocks=[]), "blocks: expected at least one layer"),
    "blocks of another kind": (lambda c: c.update(blocks={"a": 1}), r"config\.json: no transformer can be built"),
    "loops": (lambda c: c.update(loops=-1), "loops: expected an integer ≥ 0, got -1"),
    "fractional loops": (lambda c: c.update(loops=2.5), "loops: expected an integer"),
    "no loops": (lambda c: c.pop("loops"), "loops"),
    "unknown layer": (lambda c: c["blocks"][0].update(type="os.system"), "unknown layer 'os.system'"),
    "unknown kernel": (lambda c: c["blocks"][0]["attention"].update(kernel="eval"), "eval"),
    "unknown attention": (lambda c: c["blocks"][0]["attention"].update(type="Module"), "unknown attention 'Module'"),
    "step size": (lambda c: c["blocks"][0]["attention"].update(step_size=math.nan), "step_size: expected a positive"),
    "another kernel": (lambda c: c["blocks"][0]["attention"].update(kernel="Exponential"), "length_scale"),
    "median": (lambda c: c["blocks"][0]["attention"].update(length_scale="median"), "length_scale"),
}


@pytest.mark.parametrize("name", BAD_CONFIGS)
def test_structures_that_make_no_sense_are_refused_even_with_the_right_checksum(name, tmp_path):
    change, message = BAD_CONFIGS[name]
    refuse(forge(tmp_path, change_config=change), message)


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"null", b"{}", b"{" * 100, b"[" * 100_000, b"\xff\xfe", b"PK\x03\x04"]
)
def test_a_config_that_is_no_structure_is_refused(content, tmp_path):
    (save(tmp_path) / "config.json").write_bytes(content)
    refuse(tmp_path, r"config\.json: (not a whole JSON file|expected a transformer in format 1)")


class Bomb:
    """Unpickling it creates a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def test_a_pickle_in_disguise_is_refused_and_its_code_is_not_run(tmp_path):
    fuse = tmp_path / "exploded"
    bombs = [pickle.dumps(Bomb(fuse))]
    torch.save({"blocks.0.value_weights": Bomb(fuse)}, tmp_path / "zip")
    bombs.append((tmp_path / "zip").read_bytes())
    for bomb in bombs:
        for name in ("model.safetensors", "config.json"):
            (save(tmp_path / "model") / name).write_bytes(bomb)
            refuse(tmp_path / "model", rf"{name}: not a whole")
    assert not fuse.exists()
    pickle.loads(bombs[0])
    assert fuse.exists()


class Doubled(InContextTransformer):
    def forward(self, context, queries):
        return 2 * super().forward(context, queries)


def test_what_could_not_be_read_back_is_not_saved(tmp_path):
    def transformer():
        return constructions.weighted_softmax_td(kernels.RBF(0.5), 3)

    scaled, extended, pruned = transformer(), transformer(), transformer()
    scaled.scale = torch.nn.Parameter(torch.ones(()))
    extended.blocks[0].head = torch.nn.Linear(2, 2)
    prune.identity(pruned.blocks[0], "value_weights")
    for each, message in (
        (scaled, "has scale besides weights of its layers"),
        (extended, r"has blocks\.0\.head\.weight, blocks\.0\.head\.bias besides"),
        (pruned, r"has weights that a hook makes .* or prune\.remove it first"),
        (Doubled(transformer().blocks, 3), "a Doubled would be read as an InContextTransformer"),
    ):
        with pytest.raises(ValueError, match=message):
            each.save_pretrained(tmp_path / "model")
    assert not (tmp_path / "model").exists()
