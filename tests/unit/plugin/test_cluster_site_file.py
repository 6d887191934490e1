"""The site file that a private cluster gets: read back, it speaks of that cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from sbtrain.cluster.site_file import FILE, write_site_file
from sbtrain.sites.layers import load_site


def test_it_names_the_clusters_own_nodes_and_folders(tmp_path: Path) -> None:
    write_site_file(tmp_path, nodes_per_kind=3)
    shape = load_site(str(tmp_path / FILE), {}).shape
    assert {p.name: p.nodes for p in shape.partitions} == {
        "standard": 3,
        "spot": 6,
        "urgent": 6,
    }
    assert {p.scratch_path for p in shape.partitions} == {f"{tmp_path}/tmp/%n"}


@pytest.mark.parametrize("name", ['a "quoted" one', "back\\slash", "größe"])
def test_any_folder_name_is_written_as_toml_reads_it(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    folder.mkdir()
    write_site_file(folder, nodes_per_kind=4)
    assert (
        load_site(str(folder / FILE), {}).shape.partitions[0].scratch_path == f"{folder}/tmp/%n"
    )


def test_a_folder_that_no_template_can_name_keeps_the_bundled_scratch(tmp_path: Path) -> None:
    folder = tmp_path / "100%"
    folder.mkdir()
    write_site_file(folder, nodes_per_kind=4)
    scratch = load_site(str(folder / FILE), {}).shape.partitions[0].scratch_path
    assert scratch == load_site("private", {}).shape.partitions[0].scratch_path


def test_what_the_user_wrote_stays(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("mine")
    write_site_file(tmp_path, nodes_per_kind=4)
    assert (tmp_path / FILE).read_text() == "mine"
