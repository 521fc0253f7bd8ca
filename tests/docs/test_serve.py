"""docs/reference/http.md names every route, error and metric of the server; files for deployment are sound."""

import configparser
import re
from pathlib import Path

from ternarybert.serve.failures import STATUS
from ternarybert.serve.metrics import metric_specs
from ternarybert.serve.openapi import openapi_document

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reference" / "http.md").read_text(encoding="utf-8")


def test_every_route_is_listed():
    paths = openapi_document()["paths"]
    wanted = {f"{method.upper()} {path}" for path, methods in paths.items() for method in methods}
    assert set(re.findall(r"^\| `((?:GET|POST) [^`]+)` \|", PAGE, re.MULTILINE)) == wanted


def test_every_field_of_a_body_is_listed():
    document = openapi_document()
    for path, methods in document["paths"].items():
        if "post" not in methods or path == "/":  # its body is that of another route
            continue
        name = methods["post"]["requestBody"]["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
        [row] = re.findall(rf"^\| `POST {path}` \|.*$", PAGE, re.MULTILINE)
        fields = set(document["components"]["schemas"][name]["properties"]) - {
            "model",
            "truncate",
            "truncation_direction",
        }
        assert "the same" in row or all(f"`{field}`" in row for field in fields), path


def test_every_error_and_metric_is_listed():
    section = PAGE.partition("## Errors")[2]
    assert all(f"`{kind}`" in section for kind in STATUS) and all(str(code) in section for code in STATUS.values())
    assert re.findall(r"^\| `(t[eb]_\w+)` \|", PAGE, re.MULTILINE) == [spec.name for spec in metric_specs()]


def test_the_systemd_unit():
    unit = configparser.ConfigParser(interpolation=None, strict=False)
    unit.optionxform = str
    unit.read(ROOT / "deploy" / "ternarybert.service")
    assert unit["Service"]["User"] == "ternarybert" and "-HUP" in unit["Service"]["ExecReload"]
    stages = re.findall(r"^FROM .*", (ROOT / "deploy" / "Containerfile").read_text(), re.MULTILINE)
    assert len(stages) == 2 and "\nUSER 10001\n" in (ROOT / "deploy" / "Containerfile").read_text()
