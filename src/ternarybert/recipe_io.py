"""Recipes as plain data and YAML: frozen dataclasses to dictionaries and back, with errors that name the field.

A type with a `parse` classmethod is written as its `str()`; everything else is a type of YAML. The yaml package is
imported on first use, because programs that only run packed models do not need it.
"""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any

from ternarybert.errors import RecipeError, suggest

LONGEST_YAML = 1 << 16  # characters; a complete recipe takes 2,000
MOST_BRACKETS = 200  # the time that YAML takes grows with the square of their depth
SWITCH = {"switch": True}  # metadata of a number that can also be true or false


def show(value: object, most: int = 60) -> str:
    """A value for a message, shortened: a file may contain anything."""
    text = f"a {type(value).__name__}" if isinstance(value, (Mapping, list)) and len(value) > 9 else str(value)
    return text if len(text) <= most else f"{text[:most]}..."


def one_of(name: str, value: object, allowed: Iterable[str]) -> None:
    """Raise unless `value` is one of the allowed words."""
    if value not in tuple(allowed):
        raise RecipeError(f"{name}: unknown value '{show(value)}'{suggest(show(value), allowed)}")


def positive_or_none(name: str, value: float | None) -> None:
    """Raise unless `value` is None or a positive number."""
    if value is not None and not 0 < value < math.inf:
        raise RecipeError(f"{name} must be positive, got {value}")


def at_least(name: str, value: float, least: float) -> None:
    """Raise unless `value` is a finite number of at least `least`."""
    if not least <= value < math.inf:
        raise RecipeError(f"{name} must be a number of at least {least}, got {value}")


def to_plain(value: Any) -> Any:
    """Dataclasses to dictionaries, tuples to lists, types with `parse` to their `str()`."""
    if hasattr(value, "parse"):
        return str(value)
    if dataclasses.is_dataclass(value):
        return {f.name: to_plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    return [to_plain(item) for item in value] if isinstance(value, tuple) else value


def from_plain(kind: Any, value: object, where: str) -> Any:
    """A value of type `kind` from plain data: the inverse of `to_plain`."""
    if isinstance(kind, types.UnionType):  # X | None
        inner = next(arg for arg in typing.get_args(kind) if arg is not type(None))
        return None if value is None else from_plain(inner, value, where)
    if typing.get_origin(kind) is tuple:
        if not isinstance(value, (list, tuple)):
            raise RecipeError(f"{where} must be a list, got '{show(value)}'")
        return tuple(from_plain(typing.get_args(kind)[0], item, f"{where}[{i}]") for i, item in enumerate(value))
    if hasattr(kind, "parse"):
        if not isinstance(value, (str, int)):
            raise RecipeError(f"{where} must be a word, got '{show(value)}'")
        return _named(where, kind.parse, show(value))
    if dataclasses.is_dataclass(kind):
        return _from_mapping(kind, value, where)
    return _from_scalar(kind, value, where)


def _from_mapping(kind: Any, value: object, where: str) -> Any:
    if not isinstance(value, Mapping):
        raise RecipeError(f"{where} must be a mapping of fields, got '{show(value)}'")
    hints = typing.get_type_hints(kind)
    for name in value:
        if name not in hints:
            raise RecipeError(f"{where} has no field '{show(name)}'{suggest(show(name), hints)}")
    switches = {f.name for f in dataclasses.fields(kind) if f.metadata == SWITCH}
    plain = {name: float(item) if name in switches and isinstance(item, bool) else item for name, item in value.items()}
    fields = {name: from_plain(hints[name], item, f"{where}.{name}") for name, item in plain.items()}
    return _named(where, lambda: kind(**fields))


def _named(where: str, make: Callable[..., Any], *args: Any) -> Any:
    """Call `make` and add the name of the field to its error, unless it is the whole recipe."""
    try:
        return make(*args)
    except RecipeError as error:
        raise (RecipeError(f"{where}: {error}") if "." in where else error) from None


def _from_scalar(kind: Any, value: object, where: str) -> Any:
    if kind is float and isinstance(value, (int, str)) and not isinstance(value, bool):
        try:
            return float(value)  # YAML reads 2e-5, which has no dot, as a string
        except (ValueError, OverflowError):
            pass
    if isinstance(value, kind) and not (kind is not bool and isinstance(value, bool)):
        return value
    raise RecipeError(f"{where} must be a {kind.__name__}, got '{show(value)}'")


def set_field(data: dict[str, Any], name: str, value: object) -> None:
    """Set a field by its dotted name; a string is parsed as YAML."""
    *path, last = name.split(".")
    for depth, part in enumerate(path):
        inner = data.get(part)
        if part in data and not isinstance(inner, dict):
            whole = ".".join(path[: depth + 1])
            raise RecipeError(f"'{whole}' is a single value, not a group of fields; set it with {whole}=...")
        if not isinstance(inner, dict):
            where = ".".join(["recipe", *path[:depth]])
            raise RecipeError(f"{where} has no field '{part}'{suggest(part, data)}")
        data = inner
    if isinstance(value, str):
        value = read_yaml(value, f"the value of {name}")
    data[last] = value


def read_yaml(text: str, what: str) -> Any:
    """Plain data from YAML; anything wrong with the text is a `RecipeError`."""
    import yaml

    if len(text) > LONGEST_YAML:
        raise RecipeError(f"{what} has {len(text)} characters; the limit is {LONGEST_YAML}")
    if (brackets := text.count("[") + text.count("{")) > MOST_BRACKETS:
        raise RecipeError(f"{what} has {brackets} opening brackets; the limit is {MOST_BRACKETS}")
    try:
        return yaml.load(text, _strict_loader())
    except RecipeError:
        raise
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise RecipeError(f"{what} is not valid YAML: {show(' '.join(str(error).split()), 200)}") from None


def write_yaml(data: Any) -> str:
    """Plain data as YAML, in its own order."""
    import yaml

    return yaml.safe_dump(data, sort_keys=False)


@cache
def _strict_loader() -> Any:
    import yaml

    class StrictLoader(yaml.SafeLoader):
        """Safe YAML that repeats nothing: no key twice, and no aliases and merges, which can make gigabytes."""

        def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
            if self.check_event(yaml.AliasEvent):
                alias = show(self.peek_event().anchor)  # type: ignore[no-untyped-call]
                raise RecipeError(f"the alias '*{alias}' is not allowed; write the value again")
            return super().compose_node(parent, index)

        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
            seen = set()
            for key, _ in node.value:
                if key.tag == "tag:yaml.org,2002:merge":
                    raise RecipeError("the merge key '<<' is not allowed; write the fields out")
                name = str(key.value)
                if name in seen:
                    raise RecipeError(f"the field '{show(name)}' is given twice")
                seen.add(name)
            return super().construct_mapping(node, deep)

    return StrictLoader
