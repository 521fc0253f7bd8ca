"""YAML for recipes; a module of its own, because whoever only runs packed models need not wait for it."""

from __future__ import annotations

from typing import Any

import yaml

from ternarybert.errors import RecipeError
from ternarybert.recipe_fields import show


class _StrictLoader(yaml.SafeLoader):
    """Safe YAML that does not let the second of two equal keys win silently."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value]
        for key in keys:
            if keys.count(key) > 1:
                raise RecipeError(f"the field '{show(key)}' is given twice")
        return super().construct_mapping(node, deep)


def read_yaml(text: str, what: str) -> Any:
    """Plain data from YAML; whatever is wrong with the text is a `RecipeError`."""
    try:
        return yaml.load(text, _StrictLoader)
    except RecipeError:
        raise
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise RecipeError(f"{what} is not YAML: {show(' '.join(str(error).split()), 200)}") from None


def write_yaml(data: Any) -> str:
    """Plain data as YAML, in their own order."""
    return yaml.safe_dump(data, sort_keys=False)
