"""Packed models in the formats of other engines: ONNX (onnx_graph.py) and GGUF (gguf_file.py).

`export_model` writes the files that an engine needs and compares its answers with ours (agreement.py) before a file
gets its name. Files go where the hub's users look for them: `onnx/` and `*.gguf` beside the packed weights.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ternarybert import packed
from ternarybert.errors import FolderExistsError, OptionError, UnsupportedModelError, name_missing_extras, suggest
from ternarybert.export import agreement, gguf_file, onnx_graph
from ternarybert.export.agreement import SENTENCES, Agreement
from ternarybert.packed.folder import CONFIG, json_bytes
from ternarybert.packed.hf_folder import copied_files
from ternarybert.runtime.embedder import Embedder
from ternarybert.runtime.installed import is_hub_id, model_folder
from ternarybert.runtime.load import load, network_of
from ternarybert.runtime.model import Model
from ternarybert.runtime.network import Network, Output
from ternarybert.storage import lock_output, named_folder, replace_file

FORMATS = ("onnx", "gguf")
_ONNX_OUTPUTS = {Output.LOGITS: "logits", Output.TOKEN_LOGITS: "token_logits", None: "hidden"}


@dataclass(frozen=True)
class ExportedFile:
    """A file that was written, and how well it agrees with our engine."""

    path: Path
    size: int
    agreement: Agreement


def export_model(
    folder: str | Path,
    to: str,
    *,
    output: str | Path | None = None,
    texts: Sequence[str] | None = None,
    gguf_type: str | None = None,
    force: bool = False,
) -> list[ExportedFile]:
    """Write a packed model as `onnx` (two files: 2 bits and int8) or `gguf`, checked against our answers on `texts`.

    Files go to the packed folder itself, or to `output`, which also gets the configuration and the tokenizer. For a
    model of the hub, `output` is by default a folder of its name here.
    """
    if to not in FORMATS:
        raise OptionError(f"unknown format '{to}'{suggest(to, FORMATS)}")
    if gguf_type is not None and to != "gguf":
        raise OptionError(f"the type {gguf_type} is one of GGUF and has no effect on {to}")
    source = model_folder(folder)
    # A model of the hub is in its cache, which is not a place for our files.
    beside = Path(Path(folder).name.partition("@")[0]) if is_hub_id(folder) else source
    target = beside if output is None else Path(output)
    with lock_output(named_folder(target)):  # files of two models would be mixed
        return _export(source, target, to, texts, gguf_type, force=force)


def _export(
    source: Path, target: Path, to: str, texts: Sequence[str] | None, gguf_type: str | None, *, force: bool
) -> list[ExportedFile]:
    content = packed.read(source)
    network = network_of(content)
    settings = {} if target == source else _settings(source, content.config)
    _check_settings(target, settings, force=force)
    with load(source, num_threads=1) as model:
        job = _Job(model, network, list(texts or SENTENCES), force)
        if to == "onnx":
            names = {variant: onnx_graph.file_name(network, variant) for variant in onnx_graph.VARIANTS}
            made = [job.onnx(target / onnx_graph.FOLDER / name, variant) for variant, name in names.items()]
        else:
            kind = gguf_type or gguf_file.default_type(network)
            made = [job.gguf(target / f"{target.resolve().name}-{kind}.gguf", kind)]
    for name, data in settings.items():
        with replace_file(target / name) as draft:
            draft.write_bytes(data)
    return made


@dataclass(frozen=True)
class _Job:
    model: Model
    network: Network
    texts: list[str]
    force: bool

    def onnx(self, path: Path, variant: str) -> ExportedFile:
        with name_missing_extras():
            import onnx  # noqa: F401  # before a folder is made
        output = _ONNX_OUTPUTS[self.model.output]
        if type(self.model).__name__ == "Answerer":
            output = "span_logits"
        modules = self.model.modules if isinstance(self.model, Embedder) else None
        if modules is not None and not modules.include_prompt:
            raise UnsupportedModelError("the model leaves its prompt out of the pooling, which an ONNX file cannot")

        def write(draft: Path) -> None:
            onnx_graph.write_onnx(draft, self.network, variant, output, modules)

        return self._checked(path, write, agreement.OnnxModel)

    def gguf(self, path: Path, kind: str) -> ExportedFile:
        output = Output.HIDDEN if self.model.output is None else self.model.output
        modules = self.model.modules if isinstance(self.model, Embedder) else None
        if modules is None and self.model.output is None:
            raise UnsupportedModelError("the model is a plain encoder; give it a pooling, so that there is one vector")

        def write(draft: Path) -> None:
            gguf_file.write_gguf(
                draft,
                self.network,
                self.model.text,
                name=path.stem,
                type=kind,
                output=output,
                modules=modules,
                labels=tuple(self.model.labels),
            )

        return self._checked(path, write, agreement.LlamaModel)

    def _checked(
        self,
        path: Path,
        write: Callable[[Path], None],
        engine: type[agreement.OnnxModel] | type[agreement.LlamaModel],
    ) -> ExportedFile:
        if path.exists() and not self.force:
            raise FolderExistsError(f"{path} exists; choose another --output, or use --force to replace it")
        path.parent.mkdir(parents=True, exist_ok=True)
        with replace_file(path) as draft:
            write(draft)
            found = agreement.compare(self.model, self.texts, engine(draft, self.model).rows(self.texts))
        return ExportedFile(path, path.stat().st_size, found)


def _settings(source: Path, config: dict[str, object]) -> dict[str, bytes]:
    """What transformers.js reads beside the weights; the configuration without our section."""
    copied = {
        name: content.read_bytes() if isinstance(content, Path) else content
        for name, content in copied_files(source).items()
    }
    return {CONFIG: json_bytes(CONFIG, config), **copied}


def _check_settings(target: Path, settings: Mapping[str, bytes], *, force: bool) -> None:
    """Refuse a folder with the settings of another model, before anything is computed."""
    for name, data in settings.items():
        path = target / name
        if path.exists() and not force and path.read_bytes() != data:
            raise FolderExistsError(f"{path} is another model's; choose another --output, or use --force to replace it")
