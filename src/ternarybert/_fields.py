"""Frozen dataclasses to plain data and back, with errors that name the field: the machinery behind `recipe.py`.

A type that has a `parse` classmethod is written as the word it prints as; everything else is what YAML knows.
"""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Iterable, Mapping
from typing import Any

import yaml

from ternarybert.errors import RecipeError, suggest


def one_of(name: str, value: object, allowed: Iterable[str]) -> None:
    """Raise unless `value` is one of the allowed words."""
    if value not in tuple(allowed):
        raise RecipeError(f"{name}: unknown value '{value}'{suggest(value, allowed)}")


def positive_or_none(name: str, value: float | None) -> None:
    """Raise unless `value` is None or a positive number."""
    if value is not None and not 0 < value < math.inf:
        raise RecipeError(f"{name} must be positive, got {value}")


def at_least(name: str, value: float, least: float) -> None:
    """Raise unless `value` is a finite number of at least `least`."""
    if not least <= value < math.inf:
        raise RecipeError(f"{name} must be a number of at least {least}, got {value}")


def to_plain(value: Any) -> Any:
    """Dataclasses to dictionaries, tuples to lists, small values to the words they print as."""
    if hasattr(value, "parse"):
        return str(value)
    if dataclasses.is_dataclass(value):
        return {f.name: to_plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    return [to_plain(item) for item in value] if isinstance(value, tuple) else value


def from_plain(kind: Any, value: object, where: str) -> Any:
    """A value of type `kind` from plain data, the way back from `to_plain`."""
    if isinstance(kind, types.UnionType):  # X | None
        inner = next(arg for arg in typing.get_args(kind) if arg is not type(None))
        return None if value is None else from_plain(inner, value, where)
    if typing.get_origin(kind) is tuple:
        if not isinstance(value, (list, tuple)):
            raise RecipeError(f"{where} must be a list, got '{value}'")
        return tuple(from_plain(typing.get_args(kind)[0], item, f"{where}[{i}]") for i, item in enumerate(value))
    if hasattr(kind, "parse"):
        return kind.parse(str(value))
    if dataclasses.is_dataclass(kind):
        return _from_mapping(kind, value, where)
    return _from_scalar(kind, value, where)


def _from_mapping(kind: Any, value: object, where: str) -> Any:
    if not isinstance(value, Mapping):
        raise RecipeError(f"{where} must be a mapping of fields, got '{value}'")
    hints = typing.get_type_hints(kind)
    for name in value:
        if name not in hints:
            raise RecipeError(f"{where} has no field '{name}'{suggest(name, hints)}")
    return kind(**{name: from_plain(hints[name], item, f"{where}.{name}") for name, item in value.items()})


def _from_scalar(kind: Any, value: object, where: str) -> Any:
    # Where a number is wanted, a switch means 0 or 1, so that `attention: false` reads as it is meant; and YAML
    # reads 2e-5, which has no dot, as text.
    if kind is float and isinstance(value, (int, str)):
        try:
            return float(value)
        except ValueError:
            pass
    if isinstance(value, kind) and not (kind is int and isinstance(value, bool)):
        return value
    raise RecipeError(f"{where} must be a {kind.__name__}, got '{value}'")


def set_field(data: dict[str, Any], name: str, value: object) -> None:
    """Set a field by its dotted name; text is read as YAML."""
    *path, last = name.split(".")
    for depth, part in enumerate(path):
        inner = data.get(part)
        if not isinstance(inner, dict):
            where = ".".join(["recipe", *path[:depth]])
            raise RecipeError(f"{where} has no group of fields '{part}'{suggest(part, data)}")
        data = inner
    if isinstance(value, str):
        try:
            value = yaml.safe_load(value)
        except yaml.YAMLError:
            raise RecipeError(f"{name}: cannot read the value '{value}'") from None
    data[last] = value
