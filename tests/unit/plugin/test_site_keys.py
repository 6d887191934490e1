"""docs/site-keys.md is what `sbtrainctl site keys` prints, and both what schema.json says."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from sbtrain.commands.ctl import run
from sbtrain.sites.key_page import key_page
from sbtrain.sites.layers import load_site
from sbtrain.sites.site_file import site_schema

PAGE = Path(__file__).resolve().parents[3] / "docs/site-keys.md"
LEAST = """\
name = "x"
[partitions.p]
nodes = 1
cores_per_node = 1
"""


def keys(table: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any], bool]]:
    """Every key of the schema, what is said of it, and whether it must be given."""
    for key, said in table["properties"].items():
        yield key, said, key in table.get("required", ())
        if said["type"] == "object":
            yield from keys(said["additionalProperties"])


def test_the_page_is_what_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["site", "keys"], {}) == 0
    assert capsys.readouterr().out == PAGE.read_text()


def test_every_key_has_a_meaning_and_a_default() -> None:
    found = list(keys(site_schema()))
    assert len(found) > 30
    page = key_page(site_schema())
    for key, said, required in found:
        meaning, _, words = said["description"].partition("; default: ")
        assert meaning, key
        assert required != bool(words or "default" in said), key
        assert f"| `{key}` | " in page


def test_defaults_by_value_are_those_that_count(tmp_path: Path) -> None:
    """schema.json says them, and the vocabulary has them: they must not part."""
    (tmp_path / "own.toml").write_text(LEAST)
    shape = load_site(str(tmp_path / "own.toml"), {}).shape
    found = {**dataclasses.asdict(shape.partitions[0]), **dataclasses.asdict(shape)}
    found["network_gbit_s"] = found["network_bytes_s"] * 8 / 1e9
    found["shared_gb_s"] = found["shared_bytes_s"] / 1e9
    found["shared_client_gb_s"] = found["shared_client_bytes_s"] / 1e9
    found["scratch_gb_s"] = found["scratch_bytes_s"] / 1e9
    said = {key: said["default"] for key, said, _ in keys(site_schema()) if "default" in said}
    assert len(said) >= 8
    assert said == {key: found[key] for key in said}
