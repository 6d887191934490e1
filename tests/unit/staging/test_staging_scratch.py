"""Scratch templates, and scratch folders that cannot be used."""

from __future__ import annotations

from pathlib import Path

import pytest

from sbtrain_staging.cache.scratch import expand_template, prepare
from sbtrain_staging.errors import ScratchError
from sbtrain_staging.ranks.world import user_name
from users import bound_by_permissions

ENVIRON = {"SLURMD_NODENAME": "c7", "SLURM_JOB_ID": "42"}


def test_fields_are_filled_in() -> None:
    user = user_name({})
    assert expand_template("/s/%n/%u/%j/100%%", ENVIRON) == Path(f"/s/c7/{user}/42/100%")
    own = {**ENVIRON, "SBTRAIN_NODE_NAME": "mine"}
    assert expand_template("/s/%n", own) == Path("/s/mine")


@pytest.mark.parametrize("template", ["/s/%x", "relative/%n", ""])
def test_other_templates_are_refused(template: str) -> None:
    with pytest.raises(ScratchError):
        expand_template(template, ENVIRON)


def test_the_job_is_unknown_outside_one() -> None:
    with pytest.raises(ScratchError, match="%j"):
        expand_template("/s/%j", {})


def test_only_the_part_with_fields_is_created(tmp_path: Path) -> None:
    assert prepare(f"{tmp_path}/%n/%u", ENVIRON).is_dir()
    assert prepare(f"{tmp_path}/job-%j", ENVIRON) == tmp_path / "job-42"
    with pytest.raises(ScratchError, match="is not there on node c7"):
        prepare(f"{tmp_path}/disk/%n", ENVIRON)
    with pytest.raises(ScratchError, match="is not there on node c7"):
        prepare(f"{tmp_path}/disk", ENVIRON)


def test_nothing_is_left_by_the_check(tmp_path: Path) -> None:
    prepare(str(tmp_path), ENVIRON)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "c7").write_text("in the way")
    with pytest.raises(ScratchError, match="on node c7"):
        prepare(f"{tmp_path}/%n", ENVIRON)


def test_a_folder_that_cannot_be_written() -> None:
    with bound_by_permissions() as folder:
        (folder / "c7").mkdir(mode=0o500)
        with pytest.raises(ScratchError, match="on node c7"):
            prepare(f"{folder}/%n", ENVIRON)
