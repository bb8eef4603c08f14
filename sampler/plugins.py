"""Parts that users bring: named as `module:name`, or by an installed package's entry point."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING, fields, is_dataclass
from importlib.metadata import entry_points
from typing import Any, get_type_hints

from sampler.errors import RAISED, ConfigError


def load_plugin(name: str, group: str, what: str, known: Collection[str] = ()) -> Any:
    """The object that `name` stands for: `module:name`, or an entry point of the `group`.

    what: the setting, for errors. known: names besides those of the group. Raises ConfigError where
    the name is unknown, or the module cannot be imported or does not have it.
    """
    if ":" not in name:
        installed = {point.name: point for point in entry_points(group=group)}
        if name not in installed:
            names = ", ".join([*known, *sorted(installed)])
            one_of = f"one of {names}, or " if names else ""
            raise ConfigError(f"{what}={name!r} is not {one_of}of the form module:name")
        try:
            return installed[name].load()
        except RAISED as error:
            source = f"{what}={name!r}, which is {installed[name].value}"
            raise ConfigError(f"{source}, cannot be loaded: {_line(error)}") from error
    module, _, path = name.partition(":")
    try:
        found: Any = importlib.import_module(module)
    except RAISED as error:
        absent = isinstance(error, ModuleNotFoundError) and error.name == module.partition(".")[0]
        remedy = "; install it, or start from the folder that holds it" if absent else ""
        raise ConfigError(
            f"{what}={name!r}: the module cannot be imported ({_line(error)}){remedy}"
        ) from error
    for part in path.split("."):
        if not hasattr(found, part):
            raise ConfigError(
                f"{what}={name!r}: {getattr(found, '__name__', found)} has no {part!r}"
            )
        found = getattr(found, part)
    return found


def settings_of(function: Callable[..., Any], position: int, what: str) -> type | None:
    """The dataclass that annotates the parameter at `position`; None where there is no such one.

    Raises ConfigError where the parameter has no such annotation and no default, or a field of the
    dataclass has none.
    """
    parameters = list(inspect.signature(function).parameters.values())
    if len(parameters) <= position or parameters[position].kind is inspect.Parameter.VAR_POSITIONAL:
        return None
    parameter = parameters[position]
    annotated = function.__init__ if inspect.isclass(function) else function
    try:
        found = get_type_hints(annotated).get(parameter.name)
    except NameError:  # a name that only type checkers import, here or in another annotation
        found = None
    if inspect.isclass(found) and is_dataclass(found):
        check_defaults(found, what)
        return found
    if parameter.default is not inspect.Parameter.empty:
        return None
    raise ConfigError(
        f"{what} needs {parameter.name}, which is not annotated with a dataclass; annotate it, so "
        "that its fields become flags, or give it a default"
    )


def check_defaults(settings: type, what: str) -> None:
    """Raise ConfigError unless every field of the dataclass `settings` has a default."""
    for field in fields(settings):
        if field.init and field.default is MISSING and field.default_factory is MISSING:
            raise ConfigError(
                f"{what}: {settings.__name__}.{field.name} has no default; give it one, which its "
                "flag overrides"
            )


def over_defaults(settings: type, values: Mapping[str, Any], base: type) -> dict[str, Any]:
    """Those of `values` whose fields the dataclass `settings` has with the defaults of `base`.

    A plug-in that extends settings of ours, and gives some of them other defaults, means these.
    """
    ours = {field.name: field.default for field in fields(base)}
    own = {field.name: field.default for field in fields(settings)}
    return {name: v for name, v in values.items() if name in own and own[name] == ours[name]}


def _line(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"
