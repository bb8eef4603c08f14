"""Finding what users bring, and the dataclasses that hold its settings."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import EntryPoint

import pytest

from sampler import plugins
from sampler.errors import ConfigError
from sampler.plugins import load_plugin, over_defaults, settings_of

BROKEN = "raise RuntimeError('it broke')\n"


@dataclass(frozen=True)
class Settings:
    width: int = 3


@dataclass(frozen=True)
class Wider(Settings):
    width: int = 5
    depth: int = 1


@dataclass(frozen=True)
class Unset:
    width: int


def annotated(observation_space, action_space, config: Settings):
    return config


def test_module_and_name_are_found_and_mistakes_named(tmp_path, monkeypatch):
    (tmp_path / "broken_plugin.py").write_text(BROKEN)
    monkeypatch.syspath_prepend(tmp_path)
    import json

    assert load_plugin("json:JSONDecoder.decode", "fastrl.test", "algo") is json.JSONDecoder.decode
    for name, reason in (
        ("no_such_module:X", "No module named 'no_such_module'.*start from the folder"),
        ("json:Nothing", "json has no 'Nothing'"),
        ("broken_plugin:X", r"cannot be imported \(RuntimeError: it broke\)$"),
        ("nothing", "algo='nothing' is not one of ppo, or of the form module:name"),
    ):
        with pytest.raises(ConfigError, match=reason):
            load_plugin(name, "fastrl.test", "algo", ["ppo"])


def test_entry_points_of_installed_packages_are_names(monkeypatch):
    points = [
        EntryPoint("good", "collections:OrderedDict", "fastrl.test"),
        EntryPoint("bad", "collections:Nothing", "fastrl.test"),
    ]
    monkeypatch.setattr(plugins, "entry_points", lambda group: points)
    from collections import OrderedDict

    assert load_plugin("good", "fastrl.test", "model") is OrderedDict
    with pytest.raises(ConfigError, match="which is collections:Nothing, cannot be loaded"):
        load_plugin("bad", "fastrl.test", "model")
    with pytest.raises(ConfigError, match="one of bad, good, or"):
        load_plugin("other", "fastrl.test", "model")


def test_settings_are_the_dataclass_of_the_annotation():
    class Module:
        def __init__(self, observation_space, action_space, config: Wider):
            pass

    assert settings_of(annotated, 2, "it") is Settings
    with pytest.raises(ConfigError, match="needs config, which is not annotated with a dataclass"):
        settings_of(lambda observations, actions, config: None, 2, "it")
    assert settings_of(lambda observations, actions, config=None: None, 2, "it") is None
    assert settings_of(lambda observations, actions: None, 2, "it") is None
    Module.__init__.__annotations__["config"] = Wider  # of this function, not of the module
    assert settings_of(Module, 2, "it") is Wider


def test_a_field_without_a_default_is_refused():
    def make(observation_space, action_space, config):
        pass

    make.__annotations__["config"] = Unset
    with pytest.raises(ConfigError, match=r"Unset\.width has no default"):
        settings_of(make, 2, "it")


def test_own_defaults_stand_above_a_preset():
    assert over_defaults(Settings, {"width": 7}, Settings) == {"width": 7}
    assert over_defaults(Wider, {"width": 7}, Settings) == {}
