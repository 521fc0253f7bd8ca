"""Models that come as Python packages: `ternarybert.load("minilm")` after `pip install ternarybert-minilm`.

Such a package holds a packed folder and nothing else. It announces it as an entry point of the group
`ternarybert.models`: the name of the model, and the package with the folder `model` inside.

    [project.entry-points."ternarybert.models"]
    minilm = "ternarybert_minilm"

A name with a slash, `user/model`, is a model of the Hugging Face Hub (hub.py).

A packed folder of that name in the current directory comes first, so that installing a package never changes what a
path means. `./minilm` always is the folder.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ternarybert.errors import HubError, NotPackedError, suggest, suggest_path

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "ternarybert.models"
FOLDER = "model"  # inside the package
KNOWN = {"minilm": "ternarybert-minilm"}  # models that we publish, and their packages


def model_folder(model: str | Path, **hub_options: Any) -> Path:
    """The folder of a model: a path, the name of an installed model, or a hub id, which is downloaded (hub.py)."""
    path, name = Path(model), os.fspath(model)
    if path.is_dir() and ((path / "config.json").is_file() or not _is_name(name)):
        return path
    found = {point.name: point for point in entry_points(GROUP)} if _is_name(name) else {}
    if name in found:
        return _folder(found[name])
    if path.is_dir():
        return path  # not a model; reading it says what is missing
    if _is_name(name) and name in KNOWN:
        raise NotPackedError(f"the model '{name}' is not installed: pip install {KNOWN[name]}")
    if path.is_file():
        raise NotPackedError(f"'{path}' is a file; Python reads packed folders, and bundles are for C and JavaScript")
    if is_hub_id(model):
        from ternarybert.runtime.hub import fetch

        try:
            return fetch(name, **hub_options)
        except HubError as error:
            raise HubError(f"there is no folder '{path}'{suggest_path(path)}, and {error}") from error
    raise NotPackedError(f"there is no folder '{path}'{suggest_path(path) or (suggest(name, found) if found else '')}")


def entry_points(group: str) -> Iterable[EntryPoint]:
    """Those of importlib.metadata, which imports thirty modules: the path of a folder needs none of them."""
    from importlib import metadata

    return metadata.entry_points(group=group)


def local_folder(model: str | Path) -> Path:
    """A path as it is, or the folder of a hub id; a path that does not exist is left to whoever reads it."""
    return model_folder(model) if is_hub_id(model) else Path(model)


def is_hub_id(model: str | Path) -> bool:
    """Whether this names a model of the hub: nothing of that name is here."""
    return not os.path.lexists(model) and may_be_on_hub(os.fspath(model))


def installed_models() -> dict[str, Path]:
    """The folders of the installed models by name."""
    return {point.name: _folder(point) for point in entry_points(GROUP)}


def may_be_on_hub(model: str) -> bool:
    """Whether this looks like user/model; `./user/model` is a path, as is what stands in a folder that exists."""
    user, slash, rest = model.partition("/")
    return bool(slash and rest) and "/" not in rest.partition("@")[0] and user not in (".", "..", "~", "")


def _is_name(model: str) -> bool:
    """Whether this can be the name of a model: `./minilm` and `models/minilm` are paths."""
    return os.sep not in model and "/" not in model and model not in (".", "..")


def _folder(point: EntryPoint) -> Path:
    spec = find_spec(point.module)  # does not run the package
    for place in (spec.submodule_search_locations or ()) if spec else ():
        if (folder := Path(place) / FOLDER).is_dir():
            return folder
    raise NotPackedError(f"the package '{point.module}' of the model '{point.name}' has no folder '{FOLDER}'")
