"""Pretrained transformers on what they were not trained for: which sizes are tested, and what their errors are."""

import dataclasses

import numpy as np
import pytest
import torch

from icrl_agents.pretraining import PretrainConfig, pretrain
from icrl_agents.pretraining.batches import evaluation_batch
from icrl_agents.studies.pretrain.generalisation import FACTORS, TASKS, generalisation


def test_what_was_trained_with_is_among_what_it_is_tested_on():
    result = pretrain(PretrainConfig(num_states=2, context_length=1, num_layers=1, tasks=2, steps=1))
    tests = generalisation(result)
    by_name = {name: [row.value for row in tests if row.changed == name] for name in FACTORS}
    assert by_name == {"num_states": [2], "context_length": [1, 2, 5, 10, 20], "num_layers": [1, 2, 4, 8, 16]}
    batch = evaluation_batch(dataclasses.replace(result.config, context_length=5), TASKS)
    with torch.no_grad():
        values = [result.transformer.fit(batch.contexts.rows(slice(i, i + 1)).context) for i in range(TASKS)]
    terms = np.zeros(2)
    for i, value in enumerate(values):
        for s in range(2):
            v, mu = batch.values[i, s].item(), batch.stationary[i, s].item()
            found = value(batch.contexts.points[i, s]).item()
            terms += mu * (found - v) ** 2, mu * v**2
    [row] = [row for row in tests if (row.changed, row.value) == ("context_length", 5)]
    assert row.error == pytest.approx(terms[0] / terms[1])
