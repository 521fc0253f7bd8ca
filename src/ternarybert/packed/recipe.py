"""The recipe that a packed folder carries."""

from __future__ import annotations

from ternarybert.errors import PackedConfigError, RecipeError
from ternarybert.packed.model import PackedModel
from ternarybert.recipe import Recipe


def recipe_of(content: PackedModel) -> Recipe:
    """The folder's recipe, which says how activations are quantized and how training goes on."""
    if not content.recipe:
        raise PackedConfigError("the folder has no recipe, so nothing says how its activations are quantized")
    try:
        recipe = Recipe.from_dict(content.recipe)
    except RecipeError as error:
        raise PackedConfigError(f"the folder's recipe cannot be used: {error}") from error
    if str(recipe.bits) != content.bits:
        raise PackedConfigError(f"the folder is packed at {content.bits}, but its recipe says {recipe.bits}")
    return recipe
