"""The generated parts of the reference: a page says `<!-- generated: NAME -->`, and a function here writes that part.

MkDocs calls `on_page_markdown` for every page (`hooks` in mkdocs.yml). Everything is read from the code itself, so
these pages cannot go stale. An option, an argument or a command without a help text is an error: the build fails.

`` `runtime/load.py:load` `` in a page becomes a link to that line of the source, which the site contains. A name that
does not exist is an error too.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import typer.main
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_for_filename

import ternarybert
from ternarybert import errors, recipe
from ternarybert.cli import make_app

ROOT = Path(__file__).parent.parent
HEADER = ROOT / "native" / "include" / "ternarybert.h"
_COMMAND = re.compile(r"(?<!`)\b((?:torchrun .* -m )?ternarybert [a-z]+ .*|pip install .*|python -c .*)$", re.MULTILINE)
_EXTERNAL = re.compile(r"<(?:script|img|link[^>]* rel=.stylesheet.)[^>]* (?:src|href)=.?(https?://[^ >]+)")
_MARKER = re.compile(r"^<!-- generated: ([\w-]+) -->$", re.MULTILINE)


def on_page_markdown(markdown: str, **_: object) -> str:
    """Fill in what a page wants generated."""
    return _MARKER.sub(lambda marker: GENERATORS[marker[1]](), markdown)


def on_page_content(html: str, page: Any, **_: object) -> str:
    """Turn names of functions and classes into links to their lines."""
    up = "../" * page.url.count("/")

    def link(match: re.Match[str]) -> str:
        path, name = match[1], match[2]
        _linked.add(path)
        return f'<a href="{up}{_SOURCE}/{path}.html#L-{line_of(path, name)}">{match[0]}</a>'

    return _REFERENCE.sub(link, html)


def on_post_build(config: Any) -> None:
    """Add the sources that pages link to, and refuse a site that needs another server: it must work without network."""
    for path in sorted(_linked):
        _write_source(Path(config["site_dir"]) / _SOURCE / f"{path}.html", path)
    for page in Path(config["site_dir"]).rglob("*.html"):
        if external := _EXTERNAL.findall(page.read_text(encoding="utf-8")):
            raise ValueError(f"{page.name} loads {external[0]}; keep every asset in the site")


# ---- Sources ---------------------------------------------------------------------------------------------------------

_REFERENCE = re.compile(r"<code>([\w/]+\.(?:py|cc|h)):(?!:)([\w.:]+)</code>")
_SOURCE = "source"  # the folder of the site
_linked: set[str] = set()


def source_path(path: str) -> Path:
    """A file below the package, or below native/."""
    return ROOT / path if path.startswith("native/") else ROOT / "src" / "ternarybert" / path


def line_of(path: str, name: str) -> int:
    """The line that defines a function, a class or `Class.method`."""
    text = source_path(path).read_text(encoding="utf-8")
    if not path.endswith(".py"):
        definition = re.compile(rf"^[A-Za-z].*\b{re.escape(name)}\(", re.MULTILINE)
        match = definition.search(text)
        if match is None:
            raise ValueError(f"{path} does not define {name}")
        return text.count("\n", 0, match.start()) + 1
    node: Any = ast.parse(text)
    for part in name.split("."):
        defined = [child for child in node.body if getattr(child, "name", None) == part]
        if not defined:
            raise ValueError(f"{path} does not define {name}")
        node = defined[0]
    return int(node.lineno)


def _write_source(page: Path, path: str) -> None:
    text = source_path(path).read_text(encoding="utf-8")
    formatter = HtmlFormatter(full=True, title=path, linenos="inline", lineanchors="L")
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(highlight(text, get_lexer_for_filename(path), formatter), encoding="utf-8")


# ---- Command line ----------------------------------------------------------------------------------------------------


def command_line() -> str:
    """One section per command: usage, description, every argument and option, examples."""
    app: Any = typer.main.get_command(make_app())
    return "\n".join(_command(name, command) for name, command in app.commands.items())


def _command(name: str, command: Any) -> str:
    if not command.help:
        raise ValueError(f"the command '{name}' has no docstring")
    shown = [parameter for parameter in command.params if not parameter.hidden and "--help" not in parameter.opts]
    arguments = [parameter for parameter in shown if parameter.param_type_name == "argument"]
    usage = " ".join([f"ternarybert {name} [OPTIONS]", *(_metavar(argument, command) for argument in arguments)])
    parts = [f"## {name}", f"```text\n{usage}\n```", _prose(command.help)]
    for panel, parameters in _panels(shown):
        rows = [_row(name, parameter, command) for parameter in parameters]
        parts.append("\n".join([f"**{panel}**", "", "| | default | |", "|---|---|---|", *rows]))
    if command.epilog:
        parts.append(_prose(command.epilog))
    return "\n\n".join(parts) + "\n"


def _panels(parameters: list[Any]) -> list[tuple[str, list[Any]]]:
    """Arguments first, then the options by the headings that they have in `--help`, in its order."""
    panels: dict[str, list[Any]] = {}
    for parameter in parameters:
        kind = "Arguments" if parameter.param_type_name == "argument" else "Options"
        panels.setdefault(getattr(parameter, "rich_help_panel", None) or kind, []).append(parameter)
    return sorted(panels.items(), key=lambda panel: panel[0] != "Arguments")


def _row(command_name: str, parameter: Any, command: Any) -> str:
    names = ", ".join(sorted([*parameter.opts, *parameter.secondary_opts], key=len))
    if not parameter.help:
        raise ValueError(f"ternarybert {command_name}: {names} has no help text")
    if parameter.param_type_name == "argument":
        shown = _metavar(parameter, command)
    else:
        shown = names if parameter.is_flag else f"{names} {_metavar(parameter, command)}"
    return f"| {_code(shown)} | {_default(parameter)} | {_cell(' '.join(parameter.help.split()))} |"


def _metavar(parameter: Any, command: Any) -> str:
    """The name of a value as `--help` has it; types that have no name of their own get a plain one."""
    shown = str(parameter.make_metavar(ctx=command.context_class(command)))
    plain = {"int": "N", "float": "NUMBER", "str": "TEXT", "path": "PATH"}
    return re.sub(r"<(\w+)[^>]*>", lambda kind: plain.get(kind[1], kind[1].upper()), shown)


def _default(parameter: Any) -> str:
    value = parameter.default
    if parameter.required:
        return "required"
    if value in (None, False, (), [], "") or callable(value):
        return ""
    return _code(str(value))


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


def _code(text: str) -> str:
    return "`" + text.replace("|", "\\|") + "`"


def _prose(text: str) -> str:
    """Help text as Markdown: a command at the end of a line becomes code."""
    text = inspect.cleandoc(text).replace("\b\n", "")
    return _COMMAND.sub(r"`\1`", text)


# ---- Python ----------------------------------------------------------------------------------------------------------


def python_api() -> str:
    """Every public name of the package, rendered from its docstring by mkdocstrings."""
    names = sorted(ternarybert.__all__, key=lambda name: (name[0].isupper(), name))
    return "\n\n".join(f"::: ternarybert.{name}" for name in names)


def error_classes() -> str:
    """All errors as a table: class, what it also is, when it is raised."""
    rows = ["| error | also a | raised when |", "|---|---|---|"]
    for name, value in vars(errors).items():
        if isinstance(value, type) and issubclass(value, (Exception, Warning)) and value.__module__ == errors.__name__:
            bases = ", ".join(f"`{base.__name__}`" for base in value.__bases__ if base is not Exception)
            rows.append(f"| `{name}` | {bases} | {_cell(' '.join((value.__doc__ or '').split()))} |")
    return "\n".join(rows)


# ---- Recipe ----------------------------------------------------------------------------------------------------------


def recipe_fields() -> str:
    """A table for every part of a recipe: field, allowed values, the three presets, meaning."""
    parts = []
    for path, kind in _sections(recipe.Recipe, ""):
        title = f"`{path}.*`" if path else "Top level"
        parts += [f"### {title}", inspect.getdoc(kind) or "", _fields(path, kind)]
    return "\n\n".join(parts)


def _sections(kind: type, path: str) -> Iterator[tuple[str, type]]:
    """The classes of which a recipe consists, with the path at which their fields are set."""
    yield path, kind
    for field in dataclasses.fields(kind):
        default = _field_default(field)
        if dataclasses.is_dataclass(default) and not hasattr(type(default), "parse"):
            yield from _sections(type(default), f"{path}.{field.name}".lstrip("."))


def _fields(path: str, kind: type) -> str:
    names = list(recipe.PRESETS)
    rows = [f"| field | {' | '.join(f'`{name}`' for name in names)} | |", f"|---|{'---|' * len(names)}---|"]
    comments, allowed = _comments(kind), _allowed(kind)
    for field in dataclasses.fields(kind):
        default = _field_default(field)
        if dataclasses.is_dataclass(default) and not hasattr(type(default), "parse"):
            continue
        full = f"{path}.{field.name}".lstrip(".")
        values = [_show(_lookup(recipe.PRESETS[name].to_dict(), full)) for name in names]
        notes = [text for text in (comments.get(field.name), allowed.get(field.name)) if text]
        rows.append(f"| `{full}` | {' | '.join(values)} | {_cell('; '.join(notes))} |")
    return "\n".join(rows)


def _field_default(field: Any) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


def _lookup(data: Any, path: str) -> Any:
    for key in path.split("."):
        data = data[key]
    return data


def _show(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, list):  # stages: their shares of the steps
        return " + ".join(str(stage["share"]) for stage in value)
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _comments(kind: type) -> dict[str, str]:
    """The remark behind each field in the source."""
    found = re.findall(r"^    (\w+): [^#\n]*?  # (.+)$", inspect.getsource(kind), re.MULTILINE)
    return dict(found)


def _allowed(kind: type) -> dict[str, str]:
    """Allowed words of a field, from the checks in the class."""
    allowed = {}
    for call in ast.walk(ast.parse(inspect.getsource(kind))):
        if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "one_of":
            name, _, words = call.args
            values = eval(ast.unparse(words), vars(recipe))
            allowed[ast.literal_eval(name)] = "one of " + ", ".join(f"`{value}`" for value in values)
    return allowed


# ---- C ---------------------------------------------------------------------------------------------------------------


def c_header() -> str:
    """The header in its own sections."""
    text = HEADER.read_text(encoding="utf-8")
    body = text[text.index('extern "C" {') :].partition("#endif\n")[2].rpartition("#ifdef __cplusplus")[0]
    pieces = re.split(r"/\* -{4} (.+?) -+ \*/\n", body)
    titles = ["Version and CPU", *pieces[1::2]]
    return "\n\n".join(
        f"## {title}\n\n```c\n{code.strip()}\n```" for title, code in zip(titles, pieces[::2], strict=True)
    )


GENERATORS: dict[str, Callable[[], str]] = {
    "command-line": command_line,
    "python": python_api,
    "errors": error_classes,
    "recipe": recipe_fields,
    "c-header": c_header,
}
