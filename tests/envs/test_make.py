"""Ids, callables and error messages of `make`."""

from __future__ import annotations

import subprocess
import sys

import gymnasium as gym
import pytest

import sampler.envs
from sampler.envs import make
from sampler.envs.atari import AtariEnv
from sampler.errors import ConfigError, EnvError


def run(code):
    """Standard output of `code` in a fresh interpreter."""
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout


def loaded(code):
    """Which of the expensive modules are imported after `code`."""
    heavy = ("torch", "cv2", "ale_py")
    return run(f"import sys\n{code}\nprint([m for m in {heavy} if m in sys.modules])").strip()


def test_importing_the_package_is_cheap():
    assert loaded("import sampler.envs") == "[]"
    assert loaded("import sampler.envs as e; e.make('fastrl/Null-v0')") == "[]"
    assert loaded("import sampler.envs as e; e.make('CartPole-v1')") == "[]"


def test_atari_needs_no_opencv_where_the_kernel_was_built():
    pytest.importorskip("sampler.envs._preprocess")
    code = "import sampler.envs as e; e.make('BreakoutNoFrameskip-v4').reset(seed=1)"
    assert loaded(code) == "['ale_py']"


@pytest.mark.parametrize(
    "env_id", ["BreakoutNoFrameskip-v4", "ALE/Breakout-v5", "PongNoFrameskip-v0"]
)
def test_atari_ids_are_driven_directly(env_id):
    assert isinstance(make(env_id), AtariEnv)


def test_other_ids_are_made_by_gymnasium():
    assert make("CartPole-v1").spec.id == "CartPole-v1"
    assert make("CartPole-v1", sutton_barto_reward=True).spec.kwargs["sutton_barto_reward"]
    assert make("Breakout-v4").unwrapped.observation_space.shape == (210, 160, 3)


def test_module_of_an_id_is_imported(tmp_path, monkeypatch):
    (tmp_path / "registers_one.py").write_text(
        "import gymnasium\n"
        "gymnasium.register('Imported-v0', 'gymnasium.envs.classic_control:CartPoleEnv')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert make("registers_one:Imported-v0").spec.id == "Imported-v0"
    with pytest.raises(ConfigError, match="env module 'no_such_module' cannot be imported"):
        make("no_such_module:Imported-v0")


def test_callables_get_the_kwargs():
    env = make(lambda **kwargs: gym.make("CartPole-v1", **kwargs), render_mode="rgb_array")
    assert env.render_mode == "rgb_array"
    vector = make(lambda: gym.make_vec("CartPole-v1", num_envs=2, vectorization_mode="sync"))
    assert vector.num_envs == 2


@pytest.mark.parametrize(
    ("wrong", "closest"),
    [
        ("BreakoutNoFrameSkip-v4", "BreakoutNoFrameskip-v4"),
        ("breakoutnoframeskip-v4", "BreakoutNoFrameskip-v4"),
        ("Breakout-v5", "ALE/Breakout-v5"),
        ("CartPole", "CartPole-v1"),
        ("fastrl/Count-v0", "fastrl/Counter-v0"),
    ],
)
def test_unknown_ids_name_the_closest(wrong, closest):
    with pytest.raises(ConfigError) as raised:
        make(wrong)
    message = str(raised.value)
    assert message.startswith(f"env={wrong!r} is not a known id; did you mean ")
    assert closest in message
    assert "\n" not in message


def test_unknown_ids_without_a_resemblance_get_a_remedy():
    with pytest.raises(ConfigError, match="'xyz' is not a known id; pass a Gymnasium id, or a"):
        make("xyz")


def returns_none():
    return None


def raises_lines():
    raise RuntimeError("no\n  display")


def test_bad_callables_are_named():
    with pytest.raises(EnvError, match=r"env \S+\.returns_none returned builtins.NoneType; return"):
        make(returns_none)
    with pytest.raises(
        EnvError, match=r"raises_lines could not be made: RuntimeError: no display$"
    ):
        make(raises_lines)


def test_failing_constructors_are_named():
    with pytest.raises(EnvError, match="env fastrl/Counter-v0 could not be made: ValueError"):
        make("fastrl/Counter-v0", min_length=0)


@pytest.mark.parametrize("env", ["CartPole-v1", lambda wrong=1: gym.make("CartPole-v1")])
def test_a_keyword_that_an_environment_does_not_have_is_a_mistake_of_the_caller(env):
    with pytest.raises(ConfigError, match=r"has no argument 'nonsense' .*; correct env_kwargs$"):
        make(env, nonsense=1)


def test_ids_without_their_module_are_given_it(monkeypatch):
    monkeypatch.delitem(sys.modules, "minigrid", raising=False)
    with pytest.raises(ConfigError, match="did you mean minigrid:MiniGrid-Empty-5x5-v0"):
        make("MiniGrid-Empty-5x5-v0")


def test_a_module_that_is_not_found_gets_a_remedy():
    with pytest.raises(ConfigError, match=r"; install it, or start from the folder that holds it$"):
        make("no_such_module:X-v0")


def test_registering_twice_is_harmless():
    before = dict(gym.registry)
    sampler.envs.register_environments()
    assert dict(gym.registry) == before
