"""What holds for every evaluator, whatever the context: symmetries, linearity, no leak, bounds, finite gradients."""

import math
import warnings

import numpy as np
import torch
from hypothesis import strategies as st

from icrl_agents.context import Context
from icrl_agents.diagnostics import centred_msve, expected_update, kernel_diagonality, msve, sufficient_bound
from icrl_agents.divergence import DivergenceError, DivergenceWarning
from icrl_agents.evaluators import KernelTD, TabularTD, WeightedSoftmaxTD
from icrl_agents.kernels import RBF, Exponential, Identity, Laplace, ProductLaplace
from tests.properties import of, outcome
from tests.scenarios import fits, rewards_of, scenarios
from tests.strategies import close, generators, independent, samples, scales


@of(fits(least=1, traces=False))
def test_the_order_of_transitions_changes_nothing(drawn):
    sample, evaluator, rng = drawn
    shuffled = sample.chosen(rng.permutation(len(sample)))
    expected = outcome(lambda: evaluator.fit(sample.context).by_depth(sample.states))
    found = outcome(lambda: evaluator.fit(shuffled.context).by_depth(sample.states))
    if expected is DivergenceError or found is DivergenceError:
        assert found is expected
    else:
        close(found, expected, 1e-8, rewards_of(sample))


@of(st.tuples(scenarios(least=1), st.integers(2, 3)))
def test_repeating_the_whole_context_changes_nothing(drawn):
    scenario, times = drawn
    if not scenario.softmax and scenario.step_size != "auto":
        return
    context, at = scenario.context, scenario.everywhere
    expected = outcome(lambda: scenario.evaluator().fit(context).by_depth(at))
    found = outcome(lambda: scenario.evaluator().fit(Context.concatenate([context] * times)).by_depth(at))
    if expected is DivergenceError or found is DivergenceError:
        assert found is expected
    else:
        close(found, expected)


@of(st.tuples(fits(least=1), scales))
def test_values_are_linear_in_the_rewards(drawn):
    (sample, evaluator, rng), factor = drawn
    others = rewards_of(sample) * rng.normal(size=len(sample))
    mixed = factor * sample.rewards - 2.0 * others

    def values(rewards):
        return outcome(lambda: evaluator.fit(sample.with_rewards(rewards).context).by_depth(sample.states))

    one, two, both = map(values, (sample.rewards, others, mixed))
    if not any(found is DivergenceError for found in (one, two, both)):
        size = max(float((factor * one).abs().max()), float((2 * two).abs().max()))
        close(both, factor * one - 2.0 * two, 1e-8, size)


@of(scenarios(least=1))
def test_without_a_future_one_sweep_is_kernel_regression_on_rewards(scenario):
    sample = scenario.sample
    if not scenario.softmax:
        return
    blind = Context(sample.states, sample.rewards, 0 * sample.discounts, np.full_like(sample.next_states, np.nan))
    value = WeightedSoftmaxTD(scenario.chosen.kernel, 1).fit(blind)
    score, rewards = scenario.chosen.score(sample.states.tolist()), sample.rewards
    for x, found in zip(scenario.everywhere.tolist(), value(scenario.everywhere).tolist(), strict=True):
        g = np.array([score(x, y) for y in sample.states.tolist()])
        weights = np.exp(g - g.max()) if np.isfinite(g.max()) else np.zeros_like(g)
        assert abs(found - weights @ rewards / max(1.0, weights.sum())) <= 1e-9 * rewards_of(sample)
    tabular = TabularTD(3).fit(blind)(sample.states)
    for x, found in zip(sample.states, tabular.tolist(), strict=True):
        assert abs(found - rewards[(sample.states == x).all(-1)].mean()) <= 1e-9 * rewards_of(sample)


@of(fits(least=1, sampled=independent))
def test_what_follows_a_terminal_transition_is_never_read(drawn):
    sample, evaluator, rng = drawn
    ends = sample.discounts == 0
    parts = (sample.states, sample.rewards, sample.discounts)
    contexts = []
    for junk in (np.nan, 1e300, rng.normal()):
        next_states = np.where(ends[:, None], junk, sample.next_states)
        contexts.append(Context(*parts, next_states, contiguous=sample.linked & ~ends))
    first, *others = [outcome(lambda c=c: evaluator.fit(c).by_depth(sample.states)) for c in contexts]
    for other in others:
        assert (other is first) if first is DivergenceError else torch.equal(other, first)


@of(st.tuples(samples(), samples(), st.data()))
def test_nothing_crosses_from_one_episode_to_another(drawn):
    """Episodes without a common state are evaluated, by a kernel that tells states apart, as if each were alone."""
    sample, other, data = drawn
    if other.dim != sample.dim or min(len(sample), len(other)) == 0:
        return
    far = other.__class__(
        other.states + 1e4, 1e6 * other.rewards, other.discounts, other.next_states + 1e4, other.linked
    )
    order = data.draw(st.permutations([sample.context, far.context]))
    together, tiny = Context.concatenate(order), data.draw(st.sampled_from([RBF, Laplace, ProductLaplace]))(1.0)
    for evaluator in (TabularTD(5), WeightedSoftmaxTD(tiny, 5), KernelTD(tiny, 5, 0.1)):
        alone = outcome(lambda e=evaluator: e.fit(sample.context).by_depth(sample.states))
        found = outcome(lambda e=evaluator: e.fit(together).by_depth(sample.states))
        if not (alone is DivergenceError or found is DivergenceError):
            close(found, alone)


@of(st.tuples(samples(least=1), st.sampled_from([1.0, 0.3]), st.floats(-2.5, 0.5), st.integers(1, 30)))
def test_values_keep_their_bound_wherever_the_sweeps_contract(drawn):
    """Where m > (1 + γ)/2: |v_ℓ| ≤ (1 + ρ^ℓ) r_max/(1 − γ) at every depth ℓ, hence r_max/(1 − γ) in the limit.

    The factor 1 + ρ^ℓ cannot be left out: with r = (1, 1, −1), γ = 0, and states that leak 0.4 of their attention to
    the next one in a circle, v_2 = 1.32.
    """
    sample, step, log_width, depth = drawn
    kernel, gamma = Exponential(1.0) if log_width > 0.4 else RBF(10.0**log_width), sample.discounts.max()
    update = expected_update(sample.context, kernel)
    if gamma == 1.0 or update.attention.shape[-2] > update.attention.shape[-1]:
        return  # no bound, or a final observation that is bootstrapped from is no state of the context
    rho = float(sufficient_bound(kernel_diagonality(update.attention).minimum, gamma, step))
    if rho >= 1.0:
        return
    with warnings.catch_warnings():
        warnings.simplefilter("error", DivergenceWarning)
        values = WeightedSoftmaxTD(kernel, depth, step).fit(sample.context).by_depth(sample.states).abs().amax(0)
    bound = rewards_of(sample) / (1.0 - float(gamma))
    assert bool((values <= (1.0 + rho ** torch.arange(depth + 1, dtype=torch.float64)) * bound * (1 + 1e-9)).all())
    limit = WeightedSoftmaxTD(kernel, math.inf, step).fit(sample.context)
    assert float(limit(sample.states).abs().max()) <= bound * (1 + 1e-9)


@of(fits())
def test_depth_l_is_what_l_sweeps_give(drawn):
    sample, evaluator, rng = drawn
    value = outcome(lambda: evaluator.fit(sample.context))
    if value is DivergenceError:
        return
    by_depth = value.by_depth(sample.states)
    assert by_depth.shape == (len(sample), value.max_depth + 1)
    for depth in {0, value.max_depth, int(rng.integers(value.max_depth + 1))}:
        close(value.at_depth(depth)(sample.states), by_depth[:, depth])
    if value.max_depth > 0:
        assert not by_depth[:, 0].any()
    close(value.td_errors(sample.context), sample.td_errors(value), scale=rewards_of(sample))


@of(fits())
def test_a_value_depends_on_its_own_query_alone(drawn):
    sample, evaluator, rng = drawn
    value, queries = outcome(lambda: evaluator.fit(sample.context)), rng.normal(size=(4, sample.dim))
    if value is not DivergenceError:
        values = value(queries)
        size = float(values.abs().max())
        close(torch.stack([value(query) for query in queries]), values, scale=size)
        close(value(queries[::-1].copy()), values.flip(0), scale=size)
        close(value(queries.reshape(2, 2, -1)), values.reshape(2, 2), scale=size)
        assert value(queries[:0]).shape == (0,)


@of(st.tuples(scenarios(least=1), st.sampled_from([1e-2, 7.0, 1e3])))
def test_radial_kernels_know_neither_origin_nor_unit(drawn):
    scenario, unit = drawn
    sample, kernel = scenario.sample, scenario.chosen.kernel
    scale = getattr(kernel, "length_scale", 0)
    if not isinstance(kernel, (RBF, Laplace, ProductLaplace)) or len(np.unique(sample.states, axis=0)) == 1:
        return  # the median distance between equal states is 1, whatever the unit
    larger = type(kernel)("median" if scale is None else unit * scale.detach())
    moved = [unit * (states + 3.0) for states in (sample.states, sample.next_states)]
    other = sample.__class__(moved[0], sample.rewards, sample.discounts, moved[1], sample.linked)
    for algorithm in (WeightedSoftmaxTD, KernelTD):
        expected = outcome(lambda a=algorithm: a(kernel, 4).fit(sample.context).by_depth(sample.states))
        found = outcome(lambda a=algorithm: a(larger, 4).fit(other.context).by_depth(moved[0]))
        if not (expected is DivergenceError or found is DivergenceError):
            close(found, expected, 1e-7)


@of(scenarios(least=1))
def test_attention_is_a_distribution_over_the_transitions(scenario):
    value, n = outcome(lambda: scenario.evaluator().fit(scenario.context)), len(scenario.sample)
    if value is DivergenceError:
        return
    sizes = value.effective_sample_size(scenario.everywhere)
    assert bool(((sizes >= 0) & (sizes <= n * (1 + 1e-9))).all())
    if scenario.softmax:
        update = expected_update(scenario.context, scenario.chosen.kernel).attention
        sums = update.sum(-1)
        assert bool((update >= 0).all())
        assert bool((((sums - 1).abs() < 1e-9) | ((sums == 0) & isinstance(scenario.chosen.kernel, Identity))).all())


@of(st.tuples(generators, st.integers(1, 6), scales))
def test_errors_split_into_offset_and_the_rest(drawn):
    rng, m, scale = drawn
    values, targets, weights = scale * rng.normal(size=m), rng.normal(size=m), rng.random(m) + 0.01
    offset = float(((values - targets) * weights).sum() / weights.sum())
    close(msve(values, targets, weights), centred_msve(values, targets, weights) + offset**2)
