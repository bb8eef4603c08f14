"""Settings as config.json keeps them, back as dataclasses: those of plug-ins, too."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

from cli.run_folder import read_config
from sampler.errors import ConfigError

T = TypeVar("T")

FORMER_SPELLING = re.compile(r"^(|--(?:no-)?(?:learner|model)\.(?:no[-_])?)normalise(?=[-_])")


def read_settings(path: Path, kind: type[T], chosen: Callable[[Any], Mapping[str, type]]) -> T:
    """The settings in the config.json of run folder `path`, as an instance of `kind`.

    kind: a dataclass of groups, each a dataclass with defaults, of which one is `training`. chosen:
    given that group, the dataclasses of those groups that depend on it. Raises ConfigError where
    the file does not fit.
    """
    config = read_config(path)
    try:
        groups: dict[str, Any] = {group.name: group.default_factory for group in fields(kind)}  # type: ignore[arg-type]
        training = _rebuilt(groups["training"], config["training"])
        try:
            groups.update(chosen(training))
        except ConfigError as error:
            raise ConfigError(
                f"{path / 'config.json'} does not fit this release or what is installed: {error}"
            ) from None
        return kind(**{name: _rebuilt(group, config[name]) for name, group in groups.items()})
    except (KeyError, TypeError) as error:
        raise ConfigError(
            f"{path / 'config.json'} does not fit this release ({type(error).__name__}: {error}); "
            "use the one that wrote it, or start a new run"
        ) from None


def present_name(name: str) -> str:
    """The name of a setting or flag that used to be spelled otherwise: normalise_rewards."""
    return FORMER_SPELLING.sub(r"\1normalize", name)


def _rebuilt(cls: Any, values: Mapping[str, Any]) -> Any:
    """A dataclass from what JSON kept of it: tuples have become lists."""
    return cls(
        **{present_name(n): tuple(v) if isinstance(v, list) else v for n, v in values.items()}
    )
