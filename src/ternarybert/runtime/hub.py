"""Packed models on the Hugging Face Hub: `ternarybert.load("user/model")`, and `push`.

An id is `user/model`, or `user/model@revision` for a branch, a tag or a commit. A folder of that name comes first.
Token, cache, endpoint and offline mode are those of huggingface_hub (HF_TOKEN, HF_HOME, HF_ENDPOINT, HF_HUB_OFFLINE).

Only the files of the packed model are fetched: first config.json, which says that it is one and which file has the
weights. They are then read like those of any folder: every byte is checked, nothing is executed or unpickled.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ternarybert.errors import HubError, NotPackedError, OptionError
from ternarybert.packed import folder as packed_folder
from ternarybert.packed.folder import CONFIG, METRICS, PICKLED, load_object
from ternarybert.packed.hf_folder import TOKENIZER_FILES
from ternarybert.packed.manifest import QUANT_METHOD, parse

_ID = re.compile(r"(?P<id>[A-Za-z0-9][\w.\-]*/[A-Za-z0-9][\w.\-]*)(@(?P<revision>[\w.\-/]+))?", re.ASCII)
_BESIDE = (
    METRICS,
    *TOKENIZER_FILES,
    *("modules.json", "sentence_bert_config.json", "config_sentence_transformers.json"),
    *(
        f"*_{module}/{name}"
        for module in ("Pooling", "Dense", "Normalize")
        for name in ("config.json", "model.safetensors")
    ),
)
_PUSHED = ("*.json", "*.safetensors", "*.txt", "*.model", "*.yaml", "*.md", "*.jinja", "*.onnx", "*.gguf", "report/*")


def hub_id(name: str) -> tuple[str, str | None] | None:
    """An id and its revision; None for what can only be a path."""
    match = _ID.fullmatch(name)
    return None if match is None else (match["id"], match["revision"])


def fetch(
    name: str,
    *,
    revision: str | None = None,
    token: str | bool | None = None,
    cache_dir: str | Path | None = None,
) -> Path:
    """The folder of a packed model on the hub, in huggingface_hub's cache; downloaded where it is not there yet."""
    found = hub_id(name)
    if found is None:
        raise OptionError(f"'{name}' is not a hub id such as user/model")
    model, named = found
    if revision is not None and named is not None and revision != named:
        raise OptionError(f"'{name}' names the revision {named}, and revision is {revision}")
    import huggingface_hub

    options: dict[str, Any] = {"revision": revision or named, "token": token, "cache_dir": cache_dir}
    with _explained(model, options["revision"]):
        config = Path(huggingface_hub.hf_hub_download(model, CONFIG, **options)).parent
        section = load_object(config, CONFIG).get("quantization_config")
        if not isinstance(section, dict) or section.get("quant_method") != QUANT_METHOD:
            raise NotPackedError(f"{name} on the hub is not a packed model; make one of it with ternarybert ternarize")
        # A revision that is a commit cannot change between the two calls.
        options["revision"] = config.name
        files = [CONFIG, parse(load_object(config, CONFIG)).weights_file, *_BESIDE]
        return Path(huggingface_hub.snapshot_download(model, allow_patterns=files, **options))


def push(
    folder: str | Path,
    name: str,
    *,
    private: bool = False,
    token: str | None = None,
    message: str | None = None,
) -> str:
    """Upload a packed folder as a model of the hub, in one commit, and return its address.

    The folder is read and checked first. `user/model@branch` names another branch than main, which must exist.
    """
    found = hub_id(name)
    if found is None:
        raise OptionError(f"'{name}' is not a hub id such as user/model")
    model, revision = found
    packed_folder.read(folder)
    import huggingface_hub

    with _explained(model, revision):
        api = huggingface_hub.HfApi(token=token)
        api.create_repo(model, private=private or None, exist_ok=True)
        commit = api.upload_folder(
            repo_id=model,
            folder_path=folder,
            revision=revision,
            commit_message=message or "Upload with ternarybert",
            allow_patterns=list(_PUSHED),
            ignore_patterns=[*(f"*{ending}" for ending in PICKLED), ".*"],
        )
    return str(commit.repo_url if hasattr(commit, "repo_url") else commit)


@contextmanager
def _explained(model: str, revision: str | None) -> Iterator[None]:
    """Every failure of the hub as one line."""
    from huggingface_hub import errors

    try:
        yield
    except errors.GatedRepoError as error:
        raise HubError(f"{model} is gated: ask for access on its page, and set HF_TOKEN") from error
    except errors.RevisionNotFoundError as error:
        raise HubError(f"{model} has no revision '{revision}' on the hub") from error
    except (errors.RemoteEntryNotFoundError, errors.LocalEntryNotFoundError) as error:
        raise HubError(_missing(model, error)) from error
    except errors.HfHubHTTPError as error:  # a model that is not there, or not for this token, is one too
        raise HubError(_status(model, error)) from error
    except errors.HTTPError as error:
        # Of the HTTP client: a connection that ends in the middle of a file. What has arrived is kept.
        raise HubError(f"the download of {model} broke off ({_first_line(error)}); run it again to resume") from error
    except (OSError, ValueError, RuntimeError) as error:
        if isinstance(error, HubError | NotPackedError):
            raise
        raise HubError(f"cannot get {model} from the hub: {_first_line(error)}") from error


def _missing(model: str, error: Exception) -> str:
    from huggingface_hub import constants
    from huggingface_hub.errors import RemoteEntryNotFoundError

    if isinstance(error, RemoteEntryNotFoundError):
        return f"{model} on the hub has no {CONFIG}; it is not a packed model"
    if constants.is_offline_mode():
        return f"{model} is not in the cache, and HF_HUB_OFFLINE is set; load it once with a connection"
    return f"cannot reach the hub at {constants.ENDPOINT}, and {model} is not in the cache"


def _status(model: str, error: Any) -> str:
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status in (401, 403):
        return f"the hub refuses access to {model}: check its name, and the token in HF_TOKEN"
    if status == 404:
        return f"the hub has no model {model}; if it is private, set HF_TOKEN"
    return f"the hub failed on {model}: {_first_line(error)}"


def _first_line(error: BaseException) -> str:
    return (str(error).strip().split("\n")[0] or type(error).__name__)[:300]
