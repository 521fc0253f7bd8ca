"""The commands `pack` and `unpack`: between plain float32 folders and packed ones. Nothing is quantized here."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ternarybert.errors import OptionError

if TYPE_CHECKING:
    from ternarybert.recipe import Recipe

PACK_EXAMPLE = """Example: ternarybert pack released-checkpoint my-model-ternary --dense

Pickled weights (pytorch_model.bin) can run code and are never read. Where you trust them, convert them first, with \
the model's number of labels:

python -c "from transformers import BertForSequenceClassification as M; \
M.from_pretrained('released-checkpoint', num_labels=2).save_pretrained('released-checkpoint')"
"""
UNPACK_EXAMPLE = "Example: ternarybert unpack my-model-ternary my-model-float"

_SOURCE = (
    "A folder with float32 weights that are ternary already, such as the released code saves, or a packed folder that "
    "is to be packed otherwise."
)


def pack(
    source: Annotated[Path, typer.Argument(help=_SOURCE)],
    out: Annotated[Path, typer.Argument(help="The packed folder to write.")],
    dense: Annotated[bool, typer.Option("--dense", help="Five ternary weights a byte instead of four.")] = False,
    half: Annotated[bool, typer.Option("--half", help="Store what is not packed as float16.")] = False,
    recipe: Annotated[
        str | None,
        typer.Option(
            help="How a float32 checkpoint quantizes activations: a preset or a YAML file; else as the released code.",
            metavar="NAME",
        ),
    ] = None,
    float_pooler: Annotated[
        bool, typer.Option("--float-pooler", help="The checkpoint's pooler is not ternary; leave it as it is.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace the packed folder that is there.")] = False,
) -> None:
    """Pack a checkpoint whose float32 weights are ternary already, or pack a packed folder otherwise.

    To make a model ternary, use `ternarybert ternarize`.
    """
    from ternarybert import packed
    from ternarybert.packed.hf_folder import pack_plain, repack, tokenizer_files
    from ternarybert.packed.inspect import inspect_model
    from ternarybert.storage import check_not_input

    check_not_input(source, out)
    packing = "dense" if dense else "plain"
    if packed.is_packed(source):
        if recipe is not None or float_pooler:
            raise OptionError(f"{source} is packed and has its recipe; --recipe and --float-pooler are for float32")
        model = repack(packed.read(source), packing)
        taken_along = {name: source / name for name in ("recipe.yaml",) if (source / name).is_file()}
    else:
        model, taken_along = pack_plain(source, _recipe(recipe, float_pooler), packing=packing), {}
    packed.write(out, model, extra_files={**tokenizer_files(source), **taken_along}, half=half, force=force)
    sizes = inspect_model(packed.read(out))
    typer.echo(f"{out}: {sizes.bits}, {sizes.mib:.2f} MiB of tensors, {sizes.ratio:.1f} times smaller than float32")


def _recipe(name: str | None, float_pooler: bool) -> Recipe:
    from ternarybert.recipe import Recipe

    recipe = Recipe.load(name or "reference")
    return recipe.override({"pooler": False}) if float_pooler else recipe


def unpack(
    folder: Annotated[Path, typer.Argument(help="A packed folder.")],
    out: Annotated[Path, typer.Argument(help="The plain folder to write.")],
    force: Annotated[bool, typer.Option("--force", help="Replace the model that is there.")] = False,
) -> None:
    """Write a packed model as a plain float32 folder, for tools that know nothing of packing."""
    from ternarybert import packed
    from ternarybert.packed.hf_folder import write_plain

    model = packed.read(folder)
    write_plain(out, model, tokenizer=folder, force=force)
    typer.echo(f"{out}: the same weights in float32; any tool that reads Hugging Face folders can load it")
    bits = model.bits.rpartition("-")[2]
    if bits != "32":
        typer.echo(
            f"Note: a plain folder cannot say that activations are rounded to {bits} bits. There they are not, so "
            "answers differ a little from the packed model's, and scores have to be measured again."
        )
