"""``icrl collect``, as a user types it: files and datasets, policies, and what is refused before anything runs."""

import json
import sys

import gymnasium as gym
import numpy as np
import pytest

from icrl_agents import collect_episodes, load_episodes
from icrl_agents.command_line import main, parse
from icrl_agents.integrations.sb3_models import load_model
from icrl_agents.studies.collect.run import run
from icrl_agents.studies.environments import keywords, make_policy
from icrl_envs.fixed_policy import FixedPolicy


@pytest.fixture(autouse=True)
def root(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    return tmp_path


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    library = pytest.importorskip("stable_baselines3")
    path = tmp_path_factory.mktemp("models") / "ppo.zip"
    trained = library.PPO("MlpPolicy", "CartPole-v1", n_steps=64, seed=3, device="cpu").learn(64)
    trained.save(path)
    return trained, path


def same(episodes, others):
    for one, other in zip(episodes, others, strict=True):
        assert bool(one.terminated) == bool(other.terminated)
        for name in ("observations", "rewards", "actions"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


def test_an_npz_file_holds_what_python_collects(root, capsys):
    command = "collect Pendulum-v1 --num-steps 30 --max-episode-steps 12 --seed 4 --out deep/log.npz"
    assert main(command.split()) == 0
    env = gym.make("Pendulum-v1")
    same(
        load_episodes("deep/log.npz"),
        collect_episodes(env, num_steps=30, max_episode_steps=12, seed=4, keep_actions=True),
    )
    printed = capsys.readouterr()
    assert "3 episode(s), 30 steps, 6 to 12 each; 0 terminated, 3 truncated." in printed.out
    assert "collecting" in printed.err
    with np.load("deep/log.npz", allow_pickle=False) as arrays:
        about = json.loads(str(arrays["about"]))
    assert about["command"][:3] == ["icrl", "collect", "Pendulum-v1"]
    assert about["versions"]["gymnasium"] == gym.__version__
    assert [path.name for path in (root / "deep").iterdir()] == ["log.npz"]


def test_environments_take_arguments(capsys):
    command = ["collect", "icrl/BoyanChain-v0", "--env-args", "num_states=4", "features=random", "num_features=3"]
    assert main([*command, "--num-steps", "9", "--out", "chain.npz"]) == 0
    assert load_episodes("chain.npz")[0].observations.shape == (10, 3)
    assert main([*command[:3], "num_states", "--num-steps", "9", "--out", "chain2.npz"]) == 2
    assert "env_args: expected NAME=VALUE" in capsys.readouterr().err


def test_a_minari_dataset_is_loaded_by_minari(capsys):
    minari = pytest.importorskip("minari")
    command = ["collect", "CartPole-v1", "--num-episodes", "3", "--minari", "cartpole/random-v0"]
    assert main(command) == 0
    dataset = minari.load_dataset("cartpole/random-v0")
    expected = collect_episodes(gym.make("CartPole-v1"), num_episodes=3, seed=0, keep_actions=True)
    for data, episode in zip(dataset, expected, strict=True):
        np.testing.assert_array_equal(data.observations, episode.observations)
        np.testing.assert_array_equal(data.actions, episode.actions.argmax(-1))
        np.testing.assert_array_equal(data.rewards, episode.rewards)
        assert data.terminations.tolist() == [False] * (len(episode) - 1) + [True]
        assert not data.truncations.any()
    assert dataset.storage.metadata["algorithm_name"] == "random"
    assert main(command) == 2
    assert "cartpole/random-v0 exists already" in capsys.readouterr().err


def test_a_saved_model_is_a_policy_everywhere(model):
    trained, path = model
    env = gym.make("CartPole-v1")
    loaded, straight = load_model(path), collect_episodes(env, num_steps=40, seed=1, policy=trained, keep_actions=True)
    same(collect_episodes(env, num_steps=40, seed=1, policy=loaded, keep_actions=True), straight)
    folded = collect_episodes(FixedPolicy(env, loaded), num_steps=40, seed=1)
    np.testing.assert_array_equal(folded[0].observations, straight[0].observations)
    assert (
        main(["collect", "CartPole-v1", "--policy", str(path), "--num-steps", "40", "--seed", "1", "--out", "a.npz"])
        == 0
    )
    same(load_episodes("a.npz"), straight)


@pytest.mark.parametrize(
    ("algorithm", "id"),
    [("A2C", "CartPole-v1"), ("DQN", "CartPole-v1"), ("SAC", "Pendulum-v1"), ("DDPG", "Pendulum-v1")],
)
def test_the_class_of_a_model_is_found(algorithm, id, root):
    library = pytest.importorskip("stable_baselines3")
    trained = getattr(library, algorithm)("MlpPolicy", id, device="cpu", seed=0)
    trained.save(root / "model.zip")
    loaded = load_model(root / "model.zip")
    assert isinstance(trained, type(loaded))
    observation, _ = gym.make(id).reset(seed=0)
    predicted = [each.predict(observation, deterministic=True)[0] for each in (trained, loaded)]
    np.testing.assert_array_equal(*predicted)


def test_random_actions_are_mixed_in(model):
    path, shares = str(model[1]), []
    for epsilon in ("0", "0.5", "1"):
        command = ["collect", "CartPole-v1", "--policy", path, "--epsilon", epsilon, "--num-steps", "400"]
        assert main([*command, "--out", f"e{epsilon}.npz"]) == 0
        episodes = load_episodes(f"e{epsilon}.npz")
        greedy = [
            model[0].predict(e.observations[:-1], deterministic=True)[0] == e.actions.argmax(-1) for e in episodes
        ]
        shares.append(np.concatenate(greedy).mean())
    assert shares[0] == 1.0
    assert shares[1] == pytest.approx(0.75, abs=0.08)
    assert shares[2] == pytest.approx(0.5, abs=0.08)


def test_the_scripted_policy_of_metaworld_acts():
    arguments = ["--env-args", "domain=reach-v3", "--policy", "scripted", "--num-steps", "40"]
    assert main(["collect", "icrl/MetaWorld-v0", *arguments, "--out", "control.npz"]) == 0
    assert main(["collect", "icrl/MetaWorldMRP-v0", *arguments, "--out", "mrp.npz"]) == 0
    episode, folded = load_episodes("control.npz")[0], load_episodes("mrp.npz")[0]
    assert episode.actions.shape == (40, 4)
    assert folded.actions.shape == (40, 1)
    quiet = gym.make("icrl/MetaWorldMRP-v0", domain="reach-v3", noise=0.0)
    silent = collect_episodes(quiet, num_steps=40, seed=0)[0]
    # equal up to the actions' rounding: those of icrl/MetaWorld-v0 are float32
    np.testing.assert_allclose(silent.observations, episode.observations, atol=1e-6)


MISTAKES = {
    "neither number": (["--out", "a.npz"], "exactly one of --num-episodes and --num-steps"),
    "both numbers": (["--num-steps", "3", "--num-episodes", "3", "--out", "a.npz"], "exactly one of --num-episodes"),
    "no target": (["--num-steps", "3"], "exactly one of --out and --minari"),
    "no steps": (["--num-steps", "0", "--out", "a.npz"], "num_steps must be an integer ≥ 1; got 0"),
    "other suffix": (["--num-steps", "3", "--out", "a.csv"], "expected a file named *.npz, got new/folder/a.csv"),
    "existing file": (["--num-steps", "3", "--out", "here.npz"], "out: here.npz exists already"),
    "unknown policy": (
        ["--num-steps", "3", "--out", "a.npz", "--policy", "best"],
        "expected random, scripted or the path",
    ),
    "no such model": (["--num-steps", "3", "--out", "a.npz", "--policy", "best.zip"], "there is no file best.zip"),
    "no model": (["--num-steps", "3", "--out", "a.npz", "--policy", "here.zip"], "here.zip: is no model that Stable-"),
    "no scripted policy": (["--num-steps", "3", "--out", "a.npz", "--policy", "scripted"], "have a scripted policy"),
    "share of random": (["--num-steps", "3", "--out", "a.npz", "--epsilon", "0.5"], "epsilon: expected 0, since every"),
    "no share": (["--num-steps", "3", "--out", "a.npz", "--epsilon", "2"], "epsilon must be a finite number in [0, 1]"),
    "unknown argument": (["--num-steps", "3", "--out", "a.npz", "--env-args", "wind=3"], "CartPole-v1 cannot be made"),
}


@pytest.mark.parametrize(("arguments", "message"), MISTAKES.values(), ids=MISTAKES)
def test_mistakes_are_one_line_and_leave_nothing(arguments, message, root, capsys):
    for name in ("here.npz", "here.zip"):
        (root / name).write_text("in the way")
    arguments = [word.replace("a.", "new/folder/a.") for word in arguments]
    assert main(["collect", "CartPole-v1", *arguments]) == 2
    printed = capsys.readouterr().err
    assert printed.startswith("icrl: ")
    assert printed.count("\n") == 1
    assert message in printed
    assert sorted(path.name for path in root.iterdir()) == ["here.npz", "here.zip"]


def test_a_file_that_another_program_makes_meanwhile_is_left_alone_and_nothing_is_lost(monkeypatch, capsys, root):
    def slowly(*arguments, **options):
        for name in ("a.npz", "a.2.npz"):
            (root / name).write_text("another's")
        return collect_episodes(*arguments, **options)

    monkeypatch.setattr("icrl_agents.studies.collect.run.collect_episodes", slowly)
    with pytest.warns(
        UserWarning, match=r"a\.npz: another program has made it meanwhile; the episodes are in a\.3\.npz"
    ):
        assert run(parse(["collect", "CartPole-v1", "--num-steps", "9", "--seed", "1", "--out", "a.npz"]))
    assert capsys.readouterr().out.endswith("In a.3.npz.\n")
    same(load_episodes("a.3.npz"), collect_episodes(gym.make("CartPole-v1"), num_steps=9, seed=1, keep_actions=True))
    assert [(root / name).read_text() for name in ("a.npz", "a.2.npz")] == ["another's"] * 2


def test_an_unknown_id_is_one_line(capsys):
    assert main(["collect", "CartPole-v9", "--num-steps", "3", "--out", "a.npz"]) == 2
    assert "env_id: CartPole-v9 cannot be made" in capsys.readouterr().err


def test_a_model_of_another_environment_is_refused(model, capsys, root):
    assert main(["collect", "Pendulum-v1", "--policy", str(model[1]), "--num-steps", "3", "--out", "a.npz"]) == 2
    assert "was trained with observation_space" in capsys.readouterr().err
    assert list(root.iterdir()) == []


@pytest.mark.parametrize(
    ("library", "extra", "arguments"),
    [("minari", "minari", ["--minari", "a-v0"]), ("stable_baselines3", "sb3", ["--out", "a.npz"])],
)
def test_a_missing_extra_gives_the_line_that_installs_it(library, extra, arguments, monkeypatch, capsys, root, model):
    monkeypatch.setitem(sys.modules, library, None)
    policy = ["--policy", str(model[1])] if extra == "sb3" else []
    assert main(["collect", "CartPole-v1", "--num-steps", "3", *policy, *arguments]) == 2
    assert f"install it with: pip install 'icrl[{extra}]'" in capsys.readouterr().err
    assert list(root.iterdir()) == []


@pytest.mark.parametrize(
    "change", [{"action_space": gym.spaces.Discrete(3)}, {"action_space": gym.spaces.Discrete(2, start=1)}]
)
def test_a_model_of_another_number_of_actions_is_refused(model, change):
    env = gym.make("CartPole-v1")
    assert make_policy(str(model[1]), 0.0, env) is not None
    for name, space in change.items():
        setattr(env, name, space)
    with pytest.raises(ValueError, match=r"was trained with action_space Discrete\(2\), the environment has Discrete"):
        make_policy(str(model[1]), 0.0, env)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("False", False),
        ("false", False),
        ("None", None),
        ("1_000", 1000),
        ("(1, 2)", (1, 2)),
        ("'a'", "a"),
        ("low", "low"),
        ("[1, 2]", [1, 2]),
    ],
)
def test_arguments_of_environments_are_read_as_json_or_as_python_has_them(text, value):
    assert keywords([f"x={text}"]) == {"x": value}
    assert type(keywords([f"x={text}"])["x"]) is type(value)


def test_a_share_of_random_actions_where_there_is_but_one_is_refused():
    env = gym.make("icrl/BoyanChain-v0", num_states=3)
    with pytest.raises(ValueError, match="epsilon: expected 0, since there is but one action"):
        make_policy("scripted", 0.9, env)
