"""Measures of emergence, and the study that reports them."""

import csv
import dataclasses
import json
import math

import numpy as np
import pytest
import torch

from icrl_agents import diagnostics
from icrl_agents.command_line import main
from icrl_agents.compressed import CompressedContexts
from icrl_agents.constructions import average_reward_td, linear_td, weighted_softmax_td
from icrl_agents.kernels import DotProduct, Identity
from icrl_agents.layers import DualHeadLayer, FullAttentionLayer, LinearAttentionLayer
from icrl_agents.pretraining import PretrainConfig
from icrl_agents.pretraining.batches import evaluation_batch
from icrl_agents.pretraining.model import random_transformer
from icrl_agents.studies.pretrain.config import PRESETS, PretrainStudyConfig
from icrl_agents.studies.pretrain.statistics import bootstrap_band, interquartile_mean
from icrl_agents.transformer import InContextTransformer

CONFIG = PretrainConfig(num_states=4, context_length=30, num_layers=5, evaluation_tasks=3)


def full(heads=1, scale=1.0, dim=4):
    V, A = torch.zeros(heads, dim + 3, dim + 3), torch.zeros(heads, dim + 3, dim + 3)
    A[:, :dim, :dim] = 5 * torch.eye(dim) + torch.arange(dim)  # what all keys share is not seen
    for head in range(heads):
        V[head, -1 - head, -3:] = scale * torch.tensor([1.0, 1.0, -1.0])
    return FullAttentionLayer(V, A, form="dual_head" if heads == 2 else "temporal_shift")


CONSTRUCTED = {
    "shift": weighted_softmax_td(DotProduct(3 * torch.eye(4)), 5),
    "dual": weighted_softmax_td(DotProduct(3 * torch.eye(4)), 5, step_size=0.5, form="dual_head"),
    "full": InContextTransformer([full(scale=0.3), full()], 2),
    "full, two heads": InContextTransformer([full(heads=2)], 2),
    "linear": linear_td(4, 5, step_size=0.7),
    "average reward": average_reward_td(4, 5, step_size=0.7),
}


@pytest.mark.parametrize("transformer", CONSTRUCTED.values(), ids=CONSTRUCTED)
def test_constructions_have_distance_zero_and_others_do_not(transformer):
    for distance in (diagnostics.value_distance, diagnostics.value_row_distance, diagnostics.attention_distance):
        assert distance(transformer).tolist() == pytest.approx([0.0] * len(transformer.blocks), abs=1e-7)
    random = random_transformer(dataclasses.replace(CONFIG, initial_scale=1.0))
    assert diagnostics.attention_distance(random).item() > 0.5


def test_distance_is_the_sine_of_the_angle():
    transformer = weighted_softmax_td(DotProduct(torch.eye(4)), 5)
    with torch.no_grad():
        transformer.blocks[0].value_weights.copy_(torch.tensor([1.0, 0.0, 0.0]))
    assert diagnostics.value_distance(transformer).item() == pytest.approx(math.sqrt(2 / 3))
    with torch.no_grad():
        transformer.blocks[0].value_weights.copy_(torch.tensor([-1.0, -1.0, 1.0]))
    assert diagnostics.value_distance(transformer).item() == 1.0


def test_signs_and_their_rate():
    good, bad = CONSTRUCTED["full"], random_transformer(CONFIG)
    assert diagnostics.sign_pattern(good) == [(1, 1, -1), (1, 1, -1)]
    with torch.no_grad():
        bad.blocks[0].value_weights.copy_(torch.tensor([0.2, 0.0, -0.1]))
    assert diagnostics.sign_pattern(bad) == [(1, 0, -1)]
    assert diagnostics.sign_rate([good, bad, good, good]) == 0.75
    with pytest.raises(ValueError, match="at least one"):
        diagnostics.sign_rate([])
    with pytest.raises(TypeError, match="memory prompt, got a LinearAttentionLayer"):
        diagnostics.sign_pattern(CONSTRUCTED["linear"])


def test_the_sign_of_the_target_row_of_two_heads_is_a_convention():
    attention = CONSTRUCTED["dual"].blocks[0].attention
    flipped = InContextTransformer([DualHeadLayer(attention, (1.0, -1.0, -1.0), (-1.0, 1.0, 1.0))], 5)
    batch = evaluation_batch(CONFIG)
    same = InContextTransformer([DualHeadLayer(attention)], 5)
    pair = [t(batch.contexts.context, batch.contexts.points) for t in (flipped, same)]
    torch.testing.assert_close(*pair)
    assert diagnostics.sign_pattern(flipped) == [(1, 1, -1)]
    assert diagnostics.value_distance(flipped).item() == pytest.approx(0.0, abs=1e-7)
    layer = full(heads=2)
    V = layer.V.clone()
    V[0, -1, -2], V[1, -2, [-3, -1]] = -V[0, -1, -2], -V[1, -2, [-3, -1]]
    mirrored = InContextTransformer([FullAttentionLayer(V, layer.A, form="dual_head")], 3)
    assert diagnostics.sign_pattern(mirrored) == [(1, 1, -1)]
    assert diagnostics.value_distance(mirrored).item() == pytest.approx(0.0, abs=1e-7)


@pytest.mark.parametrize("name", ["shift", "dual", "full", "full, two heads"])
def test_context_diagonality_is_that_of_a_plain_loop(name):
    transformer, contexts = CONSTRUCTED[name], evaluation_batch(CONFIG).contexts
    c = 3.0 if name in ("shift", "dual") else 5.0
    for b, path in enumerate(contexts.path[:, :-1].tolist()):
        counts = {s: path.count(s) for s in set(path)}
        own = [math.exp(c) * k / (math.exp(c) * k + len(path) - k) for k in counts.values()]
        measured = diagnostics.context_diagonality(transformer, contexts)[b].item()
        assert measured == pytest.approx(sum(own) / len(own), rel=1e-6)
    matrices = diagnostics.attention_by_layer(transformer, contexts)
    assert len(matrices) == transformer.num_layers
    torch.testing.assert_close(matrices[0].sum(-1), torch.ones(3, 4, dtype=torch.float64))


def test_similarities_of_value_functions():
    config = dataclasses.replace(CONFIG, form="linear", features="random", num_features=3)
    batch = evaluation_batch(config)
    reference = linear_td(3, 5, step_size=0.5).fit(batch.contexts.context)
    P, Q = torch.zeros(7, 7), torch.randn((7, 7), generator=torch.Generator().manual_seed(0)) / 7
    P[-1, -1] = 1.0
    other = InContextTransformer([LinearAttentionLayer(P, Q)], 2).fit(batch.contexts.context)
    states, mu = batch.contexts.points, batch.stationary
    for function, expected in ((reference, 1.0), (other, None)):
        weights = diagnostics.implicit_weight_similarity(function, reference, states, mu)
        slopes = diagnostics.sensitivity_similarity(function, reference, states, mu)
        # Both value functions are linear: the gradient is the weight vector, at every state.
        torch.testing.assert_close(weights, slopes)
        if expected is None:
            w = torch.linalg.lstsq(states, torch.stack([other(states), reference(states)], -1)).solution
            torch.testing.assert_close(weights, torch.cosine_similarity(w[..., 0], w[..., 1], dim=-1))
            assert weights.max() < 0.99
        else:
            torch.testing.assert_close(weights, torch.ones(3, dtype=torch.float64))
    difference = diagnostics.value_difference(other, reference, states, mu)
    for b in range(3):
        plain = sum(
            m * (x - y) ** 2
            for m, x, y in zip(mu[b].tolist(), other(states)[b].tolist(), reference(states)[b].tolist(), strict=True)
        )
        assert difference[b].item() == pytest.approx(plain)


def test_sensitivity_of_a_softmax_transformer_is_that_of_finite_differences():
    batch = evaluation_batch(CONFIG)
    pair = [weighted_softmax_td(DotProduct(c * torch.eye(4)), 5).fit(batch.contexts.context) for c in (1.0, 3.0)]
    states, slopes = batch.contexts.points, []
    for function in pair:
        steps = 1e-6 * torch.eye(4, dtype=torch.float64)
        moved = [(function(states + step) - function(states - step)) / 2e-6 for step in steps]
        slopes.append(torch.stack(moved, dim=-1))
    expected = (batch.stationary * torch.cosine_similarity(*slopes, dim=-1)).sum(-1)
    measured = diagnostics.sensitivity_similarity(*pair, states, batch.stationary)
    torch.testing.assert_close(measured, expected, rtol=1e-5, atol=1e-6)
    with torch.inference_mode():
        assert torch.equal(diagnostics.sensitivity_similarity(*pair, states, batch.stationary), measured)
    shared = diagnostics.sensitivity_similarity(*pair, states[0], batch.stationary[0])
    each = diagnostics.sensitivity_similarity(*pair, states[:1].expand_as(states), batch.stationary[:1].expand(3, -1))
    assert shared.shape == (3,)
    torch.testing.assert_close(shared, each, rtol=0, atol=1e-12)


def test_diagonality_needs_attention_between_states():
    with pytest.raises(TypeError, match="memory prompt"):
        diagnostics.context_diagonality(CONSTRUCTED["linear"], evaluation_batch(CONFIG).contexts)
    sharp = weighted_softmax_td(Identity(), 3)
    assert diagnostics.context_diagonality(sharp, evaluation_batch(CONFIG).contexts).tolist() == pytest.approx(
        [1.0] * 3
    )


def test_interquartile_means_and_bands():
    assert interquartile_mean(np.array([9.0, 1.0, 2.0, -50.0])) == pytest.approx(1.5)
    assert interquartile_mean(np.array([1.0, 2.0, 6.0])) == pytest.approx((0.25 * 1 + 2 * 1 + 0.25 * 6) / 1.5)
    assert interquartile_mean(np.array([[3.0, 4.0]])).tolist() == [3.0, 4.0]
    samples = np.random.default_rng(0).normal(size=(40, 3))
    band = bootstrap_band([samples[:20], samples[20:]], np.random.default_rng(1))
    assert (band.low < band.centre).all()
    assert (band.centre < band.high).all()
    assert ((band.high - band.low) / (4 * 1 / math.sqrt(40))).tolist() == pytest.approx([1.0] * 3, abs=0.5)


@pytest.mark.parametrize("diverged", [math.inf, math.nan])
def test_what_lies_outside_the_middle_half_is_not_read(diverged):
    samples = np.array([*np.linspace(0.1, 0.9, 9), diverged])
    assert interquartile_mean(samples) == pytest.approx(interquartile_mean(np.array([*samples[:9], 1e300])))
    assert not math.isfinite(interquartile_mean(np.array([0.1, 0.2, diverged])))
    band = bootstrap_band([samples], np.random.default_rng(0))
    assert 0.1 < band.low < band.centre < 0.9
    assert not math.isfinite(band.high)  # the diverged one is drawn three times or more in 7 % of the resamples
    many = bootstrap_band([np.concatenate([np.linspace(0, 1, 40), [diverged]])], np.random.default_rng(0))
    assert many.low < many.centre < many.high < 1


def test_a_small_study_writes_its_folder_and_goes_on_where_it_was(tmp_path, capsys):
    arguments = [
        "pretrain",
        "boyan",
        "--steps",
        "4",
        "--num-states",
        "4",
        "--num-features",
        "6",
        "--num-layers",
        "3",
        "--min-layers",
        "2",
    ]
    arguments += ["--context-length", "15", "--seeds", "2", "--out", str(tmp_path / "out")]
    assert main(arguments) == 0
    printed = capsys.readouterr()
    assert "of 2 seeds" in printed.out
    assert "diagonality" in printed.err
    with (tmp_path / "out" / "rows.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["seed"], row["step"]) for row in rows] == [("0", "0"), ("0", "4"), ("1", "0"), ("1", "4")]
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {
        *("config.json", "rows.csv", "generalisation.csv", "seed_0", "seed_1"),
        *("training.png", "attention.png", "generalisation.png"),
    }
    assert json.loads((tmp_path / "out" / "config.json").read_text())["settings"]["preset"] == "boyan"
    loaded = InContextTransformer.from_pretrained(tmp_path / "out" / "seed_1")
    assert diagnostics.value_weights(loaded)[0, 0].item() == pytest.approx(float(rows[-1]["weight_reward"]))
    assert main(arguments) == 0
    assert capsys.readouterr().out == printed.out
    assert main([*arguments, "--loss", "mc"]) == 2
    assert "another configuration" in capsys.readouterr().err


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_hold_one_training_per_seed(preset):
    trainings = PretrainStudyConfig(preset=preset, seeds=3, first_seed=5).trainings()
    assert [training.seed for training in trainings] == [5, 6, 7]
    assert dataclasses.replace(trainings[0], seed=0) == PRESETS[preset]


@pytest.mark.parametrize(
    "arguments", [["--gamma", "2"], ["byan"], ["--seeds", "0"], ["linear", "--parametrisation", "full"]]
)
def test_mistakes_are_one_line_and_leave_nothing(arguments, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["pretrain", *arguments]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_contexts_without_a_transition_have_no_attention():
    contexts = CompressedContexts(
        torch.eye(4)[None].double(),
        torch.zeros(1, 4).double(),
        torch.zeros(1, 1, dtype=torch.long),
        torch.zeros(1, 0).double(),
    )
    assert diagnostics.context_diagonality(CONSTRUCTED["shift"], contexts).tolist() == [0.0]
