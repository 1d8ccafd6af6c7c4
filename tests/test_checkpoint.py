"""Checkpoints: what is written is read back bit for bit, and what could not be is not written."""

import math
import os

import numpy as np
import pytest
import safetensors.torch
import torch

from icrl_agents import constructions, kernels
from icrl_agents.attention import SoftmaxAttention
from icrl_agents.context import Context, Episode
from icrl_agents.layers import DualHeadLayer, TemporalShiftLayer, export_multihead_attention
from icrl_agents.transformer import InContextTransformer

pytestmark = pytest.mark.filterwarnings("ignore::icrl_agents.divergence.DivergenceWarning")

DIM, LAYERS = 3, 6
RNG = np.random.default_rng(0)
CONTEXT = Context.from_episodes([Episode(RNG.normal(size=(n + 1, DIM)), RNG.normal(size=n)) for n in (7, 4)], 0.9)
QUERIES = torch.as_tensor(RNG.normal(size=(5, DIM)))
MATRIX = torch.as_tensor(RNG.normal(size=(DIM, DIM)))
KERNELS = [
    kernels.RBF(1 / 3),
    kernels.RBF("median"),
    kernels.RBF(torch.tensor([0.1, 2.0, 3.3])),
    kernels.Laplace(0.7),
    kernels.Laplace("median"),
    kernels.Exponential(math.pi),
    kernels.DotProduct(MATRIX),
    kernels.Identity(),
]


def sequential():
    """Two different layers, untied weights, one kernel in both."""
    attention = SoftmaxAttention(kernels.RBF(0.5))
    layers = [TemporalShiftLayer(attention, (0.9, 1.1, -1.3)), DualHeadLayer(attention, (1.0, 1.0, -1.0))]
    return InContextTransformer(layers, loops=3)


TRANSFORMERS = {
    **{f"softmax {k}": constructions.weighted_softmax_td(k, LAYERS, 1 / 3, form="dual_head") for k in KERNELS},
    **{f"kernel {k}": constructions.kernel_td(k, LAYERS) for k in [*KERNELS, kernels.Linear(), kernels.ReLU()]},
    "softmax shift": constructions.weighted_softmax_td(kernels.RBF(0.5), LAYERS, form="temporal_shift"),
    "kernel shift": constructions.kernel_td(kernels.RBF(0.5), LAYERS, 0.1, form="temporal_shift"),
    "linear": constructions.linear_td(DIM, LAYERS, 1 / 7, MATRIX),
    "lambda": constructions.td_lambda(DIM, LAYERS, 0.7),
    "residual": constructions.residual_gradient(DIM, LAYERS),
    "average": constructions.average_reward_td(DIM, LAYERS, "auto", 0.3),
    "sequential": sequential(),
    "no layers": constructions.kernel_td(kernels.RBF(), 0),
}


def save(folder, transformer=None):
    (transformer or constructions.kernel_td(kernels.RBF(0.5), LAYERS)).save_pretrained(folder)
    return folder


def assert_same_weights(a, b):
    a, b = a.state_dict(), b.state_dict()
    assert list(a) == list(b)
    assert all(a[name].dtype == b[name].dtype and torch.equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_save_and_load_is_bit_equal(name, tmp_path):
    transformer = TRANSFORMERS[name]
    transformer.save_pretrained(str(tmp_path / "deep" / "folder"))
    loaded = InContextTransformer.from_pretrained(str(tmp_path / "deep" / "folder"))
    assert_same_weights(loaded, transformer)
    assert loaded.num_layers == transformer.num_layers
    assert torch.equal(loaded.fit(CONTEXT).by_depth(QUERIES), transformer.fit(CONTEXT).by_depth(QUERIES))
    assert not any(weight.requires_grad for weight in loaded.parameters())


def test_the_folder_holds_two_files_and_a_second_save_replaces_them(tmp_path):
    first, second = TRANSFORMERS["linear"], TRANSFORMERS["softmax shift"]
    for transformer in (first, second):
        save(tmp_path, transformer)
        assert {path.name for path in tmp_path.iterdir()} == {"model.safetensors", "config.json"}
    assert_same_weights(InContextTransformer.from_pretrained(tmp_path), second)


def test_saving_what_was_loaded_writes_the_same_bytes(tmp_path):
    save(tmp_path / "a", TRANSFORMERS["sequential"])
    save(tmp_path / "b", InContextTransformer.from_pretrained(tmp_path / "a"))
    for name in ("model.safetensors", "config.json"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_narrower_weights_stay_narrow_and_the_context_decides_how_to_compute(dtype, tmp_path):
    transformer = constructions.kernel_td(kernels.RBF(1 / 3), LAYERS).to(dtype)
    loaded = InContextTransformer.from_pretrained(save(tmp_path, transformer))
    assert_same_weights(loaded, transformer)
    found = loaded.fit(CONTEXT)(QUERIES)
    assert found.dtype == torch.float64
    assert torch.equal(found, transformer.fit(CONTEXT)(QUERIES))
    exact = constructions.kernel_td(kernels.RBF(float(torch.tensor(1 / 3).to(dtype))), LAYERS)
    assert torch.equal(found, exact.fit(CONTEXT)(QUERIES))


def test_loaded_weights_can_be_trained_and_saved_again(tmp_path):
    loaded = InContextTransformer.from_pretrained(save(tmp_path)).requires_grad_(True)
    optimizer = torch.optim.SGD(loaded.parameters(), lr=1e-3)
    loaded(CONTEXT, QUERIES).square().sum().backward()
    optimizer.step()
    assert_same_weights(InContextTransformer.from_pretrained(save(tmp_path, loaded)), loaded)
    assert not torch.equal(loaded.state_dict()["blocks.0.value_weights"], torch.tensor([1.0, 1.0, -1.0]).double())


def test_what_cannot_be_read_back_is_refused_before_anything_is_written(tmp_path):
    class Mine(kernels.RBF):
        """A kernel of the user."""

    class Layer(TemporalShiftLayer):
        """A layer of the user."""

    folder = tmp_path / "new"
    for kernel in (lambda x, y: x @ y.mT, Mine(0.5)):
        with pytest.raises(
            ValueError, match=r"kernel: .* is a callable of yours and cannot be saved; expected one of RBF"
        ):
            save(folder, constructions.kernel_td(kernel, LAYERS))
    with pytest.raises(ValueError, match=r"blocks: a Layer cannot be saved"):
        save(folder, InContextTransformer([Layer(SoftmaxAttention(kernels.RBF()))]))
    for value, message in (
        (math.nan, "expected blocks.0.attention.kernel.length_scale to be finite"),
        (-1.0, "positive"),
    ):
        transformer = constructions.kernel_td(kernels.RBF(0.5), LAYERS)
        transformer.get_parameter("blocks.0.attention.kernel.length_scale").fill_(value)
        with pytest.raises(ValueError, match=message):
            save(folder, transformer)
    assert not folder.exists()


def test_a_save_that_fails_leaves_the_old_checkpoint_and_nothing_else(tmp_path, monkeypatch):
    old = TRANSFORMERS["linear"]
    save(tmp_path, old)
    writes = iter(range(2))

    def full_disk(descriptor):
        if next(writes) == 1:
            raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full_disk)
        with pytest.raises(OSError, match=r"config\.json: cannot be written \(No space left on device\)"):
            save(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"model.safetensors", "config.json"}
    assert_same_weights(InContextTransformer.from_pretrained(tmp_path), old)


def test_a_file_in_the_place_of_the_folder_is_an_error(tmp_path):
    (tmp_path / "taken").write_text("mine")
    with pytest.raises(OSError, match="taken"):
        save(tmp_path / "taken")
    assert (tmp_path / "taken").read_text() == "mine"
    with pytest.raises(FileNotFoundError, match=r"taken.config\.json: not found"):
        InContextTransformer.from_pretrained(tmp_path / "taken")


def test_a_length_scale_below_0_is_refused_with_the_way_out(tmp_path):
    transformer = constructions.weighted_softmax_td(kernels.RBF(0.3), 2)
    scale = transformer.get_parameter("blocks.0.attention.kernel.length_scale")
    with torch.no_grad():
        scale.neg_()
        with pytest.raises(ValueError, match=r"kernel.length_scale: expected a positive .* take length_scale.abs_"):
            transformer.save_pretrained(tmp_path / "new")
        assert list(tmp_path.iterdir()) == []
        scale.abs_()
    transformer.save_pretrained(tmp_path)


def test_weights_of_something_else_are_not_replaced(tmp_path):
    safetensors.torch.save_file({"actor.weight": torch.ones(2)}, tmp_path / "model.safetensors")
    before = (tmp_path / "model.safetensors").read_bytes()
    with pytest.raises(ValueError, match=r"model.safetensors: is not of a transformer, and would be lost"):
        constructions.weighted_softmax_td(kernels.RBF(0.3), 2).save_pretrained(tmp_path)
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [before]


def test_an_exported_layer_is_refused_with_the_way_out(tmp_path):
    exported = export_multihead_attention(constructions.weighted_softmax_td(kernels.RBF(0.3), 2).blocks[0], 2)
    with pytest.raises(ValueError, match=r"a MultiheadLayer cannot be saved; expected one of .* exported from"):
        InContextTransformer([exported], 2).save_pretrained(tmp_path / "new")
    assert list(tmp_path.iterdir()) == []


def test_a_layer_in_several_places_is_one_again(tmp_path):
    first, second = sequential().blocks
    transformer = InContextTransformer([first, second, first])
    transformer.save_pretrained(tmp_path)
    loaded = InContextTransformer.from_pretrained(tmp_path)
    assert_same_weights(loaded, transformer)
    assert loaded.blocks[0] is loaded.blocks[2] is not loaded.blocks[1]
    assert len(list(loaded.parameters())) == len(list(transformer.parameters())) + 1  # the kernel, which two share
