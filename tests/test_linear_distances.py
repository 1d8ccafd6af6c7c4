"""Distances of layers to constructions, up to the symmetries that the layers have."""

import math
from itertools import permutations

import pytest
import torch

from icrl_agents import diagnostics
from icrl_agents.constructions import average_reward_td, linear_td, residual_gradient, weighted_softmax_td
from icrl_agents.kernels import DotProduct
from icrl_agents.layers import LinearAttentionLayer
from icrl_agents.pretraining import PretrainConfig
from icrl_agents.pretraining.batches import evaluation_batch
from icrl_agents.transformer import InContextTransformer
from icrl_envs import boyan_chain

LINEAR, AVERAGE = linear_td(4, 5, step_size=0.7), average_reward_td(4, 5, step_size=0.7)


def linear_distances(P, Q, prompt="discounted", construction=None):
    transformer = InContextTransformer([LinearAttentionLayer(P, Q, prompt=prompt)], 3)
    kinds = diagnostics.value_distance, diagnostics.value_row_distance, diagnostics.attention_distance
    return [kind(transformer, construction).item() for kind in kinds]


def test_linear_distances_have_the_symmetries_of_the_layer_and_no_others():
    block = LINEAR.blocks[0]
    P, Q, exact = block.P.detach(), block.Q.detach(), pytest.approx([0.0] * 3, abs=1e-7)
    for c in (3.0, -1.0, -0.2):  # P (·) Q is unchanged
        pair = [InContextTransformer([LinearAttentionLayer(*weights)], 3) for weights in ((P, Q), (c * P, Q / c))]
        contexts = evaluation_batch(PretrainConfig(num_states=4, context_length=30, evaluation_tasks=3)).contexts
        torch.testing.assert_close(*(each(contexts.context, contexts.points) for each in pair))
        assert linear_distances(c * P, Q / c) == exact
    for one_flipped in (linear_distances(-P, Q), linear_distances(P, -Q)):
        assert max(one_flipped) == 1.0
    average = AVERAGE.blocks[0]
    P, Q = average.P.detach(), average.Q.detach()
    scale = torch.tensor([-2.0, 0.5])[:, None, None]
    assert linear_distances((scale * P)[[1, 0]], (Q / scale)[[1, 0]], "average_reward") == exact
    flipped = torch.tensor([-1.0, 1.0])[:, None, None] * P
    assert max(linear_distances(flipped, Q, "average_reward")) == pytest.approx(math.sqrt(0.5))  # in one head of two


def test_many_heads_are_matched_as_by_trying_all_orders_in_no_time():
    def layer(heads, dim=2):
        draw = torch.Generator().manual_seed(heads)
        return LinearAttentionLayer(*(torch.randn(heads, 2 * dim + 1, 2 * dim + 1, generator=draw) for _ in "PQ"))

    def cosines(found, target):
        return torch.nn.functional.cosine_similarity(found.flatten(1)[:, None], target.flatten(1)[None], dim=-1)

    target, found = layer(5), layer(5)
    with torch.no_grad():
        found.P.copy_(target.P[[3, 1, 4, 0, 2]] + 2.0 * found.P), found.Q.copy_(target.Q[[1, 0, 2, 4, 3]] + found.Q)
    weights = [(each.P.detach(), each.Q.detach()) for each in (found, target)]
    P, Q = (cosines(*pair) for pair in zip(*weights, strict=True))
    best = max(permutations(range(5)), key=lambda order: sum(float((P + Q)[k, h].abs()) for h, k in enumerate(order)))
    signs = [float((P + Q)[k, h].sign()) for h, k in enumerate(best)]
    for got, cosine in zip(linear_distances(*weights[0], construction=construction(target))[::2], (P, Q), strict=True):
        fits = [max(0.0, sign * float(cosine[k, h])) for h, (k, sign) in enumerate(zip(best, signs, strict=True))]
        assert got == pytest.approx(math.sqrt(1.0 - sum(fit**2 for fit in fits) / 5), abs=1e-6)
    many = layer(40)
    order = torch.randperm(40, generator=torch.Generator().manual_seed(0))
    shuffled = (many.P.detach()[order], many.Q.detach()[order])
    assert linear_distances(*shuffled, construction=construction(many)) == pytest.approx([0.0] * 3, abs=1e-3)


def construction(layer):
    return InContextTransformer([layer], 1)


def test_linear_distances_are_to_the_construction_that_is_given():
    other = residual_gradient(4, 5)
    P, Q = other.blocks[0].P.detach(), other.blocks[0].Q.detach()
    assert linear_distances(-P, -Q, construction=other) == pytest.approx([0.0] * 3, abs=1e-7)
    assert linear_distances(P, Q)[2] == pytest.approx(math.sqrt(0.5))
    with pytest.raises(ValueError, match="construction: expected a linear transformer over the same prompt"):
        linear_distances(P, Q, construction=AVERAGE)


@pytest.mark.parametrize("features", ["one_hot", "random"])
def test_attention_is_at_distance_0_only_where_its_weights_on_the_keys_are_the_constructions(features):
    chain, u = boyan_chain(num_states=4, features=features), torch.tensor([[3.0], [-2.0], [1.0], [4.0]])
    same = features == "one_hot"  # where uᵀφ(x) is added to the scores of all keys alike
    moved, plain = (weighted_softmax_td(DotProduct(B), 1) for B in (torch.eye(4) + u @ torch.ones(1, 4), torch.eye(4)))
    matrices = [diagnostics.attention_matrix(chain, each.blocks[0].attention.kernel) for each in (moved, plain)]
    assert bool((matrices[0] - matrices[1]).abs().max() < 1e-6) == same
    distance = diagnostics.attention_distance(moved, one_hot=same).item()
    assert distance == pytest.approx(0.0, abs=1e-6) if same else distance > 0.5
    assert diagnostics.attention_distance(plain, one_hot=same).item() == pytest.approx(0.0, abs=1e-6)
