"""The command `pack`: packs float32 weights that are ternary already. Nothing is quantized here."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ternarybert.cli.console import handle_errors
from ternarybert.cli.options import OUTPUT, RECIPE, OptionGroup, option, refuse, with_options

if TYPE_CHECKING:
    from ternarybert.recipe import Recipe

EXAMPLE = """Example: ternarybert pack released-checkpoint my-model-ternary --dense

Pickled weights (pytorch_model.bin) can run code and are never read. If you trust them, convert them first, with the \
model's number of labels:

python -c "from transformers import BertForSequenceClassification as M; \
M.from_pretrained('released-checkpoint', num_labels=2).save_pretrained('released-checkpoint')"
"""
_SOURCE = (
    "Folder with float32 weights that are ternary already, as the released code saves them, or a packed model: "
    "a folder or a hub id."
)


class PackOptions(OptionGroup):
    """How a checkpoint is read and packed."""

    recipe: str | None = option(
        RECIPE,
        "Recipe (preset or YAML file) that says how activations of a float32 checkpoint are quantized. By default "
        "that of the released code.",
        "NAME|FILE",
    )
    float_pooler: bool = option(
        RECIPE, "Keep the pooler in float: in this checkpoint it is not ternary.", default=False
    )
    dense: bool = option(OUTPUT, "Pack five ternary weights per byte instead of four.", default=False)
    half: bool = option(OUTPUT, "Store the tensors that are not packed as float16.", default=False)
    positions: int | None = option(
        OUTPUT, "Keep positions for this many tokens only; longer texts are then truncated.", "TOKENS", min=8
    )
    compact_tokenizer: bool = option(
        OUTPUT, "BERT's tokenizer as its word list, without the larger tokenizer.json.", default=False
    )
    force: bool = option(OUTPUT, "Replace an existing packed folder.", default=False)


@with_options
def pack(
    source: Annotated[Path, typer.Argument(help=_SOURCE)],
    out: Annotated[Path, typer.Argument(help="Packed folder to write.")],
    *,
    options: PackOptions,
) -> None:
    """Pack a checkpoint whose float32 weights are ternary already, or change how a packed folder is packed.

    To make a model ternary, use `ternarybert ternarize`.
    """
    from ternarybert import packed
    from ternarybert.packed.compact import compact_tokenizer, trim_positions
    from ternarybert.packed.hf_folder import TOKENIZER_FILES, copied_files, pack_plain, repack
    from ternarybert.packed.inspect import inspect_model
    from ternarybert.runtime.installed import local_folder
    from ternarybert.storage import check_not_input

    with handle_errors():
        source = local_folder(source)
        check_not_input(source, out)
        packing = "dense" if options.dense else "plain"
        if packed.is_packed(source):
            refuse(
                f"on {source}, which is packed and has its recipe",
                recipe=options.recipe,
                float_pooler=options.float_pooler,
            )
            model = repack(packed.read(source), packing)
            recipes = {name: source / name for name in ("recipe.yaml",) if (source / name).is_file()}
        else:
            model, recipes = pack_plain(source, _recipe(options), packing=packing), {}
        if options.positions is not None:
            model = trim_positions(model, options.positions)
        extra = {**copied_files(source), **recipes}
        if options.compact_tokenizer:
            extra = {name: content for name, content in extra.items() if name not in TOKENIZER_FILES}
            extra |= compact_tokenizer(source)
        packed.write(out, model, extra_files=extra, half=options.half, force=options.force)
        sizes = inspect_model(packed.read(out))
    typer.echo(f"{out}: {sizes.bits}, {sizes.mib:.2f} MiB of tensors, {sizes.ratio:.1f} times smaller than float32")


def _recipe(options: PackOptions) -> Recipe:
    from ternarybert.recipe import Recipe

    recipe = Recipe.load(options.recipe or "reference")
    return recipe.override({"pooler": False}) if options.float_pooler else recipe
