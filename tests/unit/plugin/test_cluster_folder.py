"""The folder of a private cluster: whose it is, its record, and the link for odd paths."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from clusters import RECORD
from sbtrain.cluster.errors import ClusterError
from sbtrain.cluster.folder import ClusterFolder, remove_root, usable_root


def test_the_record_comes_back(tmp_path: Path) -> None:
    folder = ClusterFolder.at(tmp_path / "c")
    folder.create()
    assert folder.read_record() is None
    folder.write_record(RECORD)
    assert folder.read_record() == RECORD
    folder.create()


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"version": 99}', '{"version": 1, "x": 2}'])
def test_a_record_that_cannot_be_read_is_an_error_with_a_hint(
    tmp_path: Path, text: str
) -> None:
    (tmp_path / "cluster.json").write_text(text)
    with pytest.raises(ClusterError, match=r"cannot read .*cluster\.json") as caught:
        ClusterFolder.at(tmp_path).read_record()
    assert str(tmp_path) in caught.value.hint


def test_refuses_a_folder_that_holds_something_else(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(ClusterError, match="not a cluster's folder"):
        ClusterFolder.at(tmp_path).create()
    assert (tmp_path / "thesis.tex").exists()


def test_a_folder_that_cannot_be_made_is_an_error_with_a_hint(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ClusterError, match="cannot make") as caught:
        ClusterFolder.at(tmp_path / "file" / "c").create()
    assert "--folder" in caught.value.hint


def test_another_users_folder_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = tmp_path.stat().st_uid
    monkeypatch.setattr(os, "getuid", lambda: owner + 1)
    with pytest.raises(ClusterError, match="belongs to another user"):
        ClusterFolder.at(tmp_path).create()


def test_a_short_plain_path_stands_for_itself() -> None:
    folder = ClusterFolder(Path("/home/ada/c"))
    assert usable_root(folder, None) == "/home/ada/c"
    assert usable_root(folder, "/tmp/sbt-x/c") == "/home/ada/c"


@pytest.mark.parametrize("name", ["x" * 60, "two words", "a,b", "50%", "a#b", "ü"])
def test_any_other_path_gets_a_private_link(tmp_path: Path, name: str) -> None:
    folder = ClusterFolder.at(tmp_path / name)
    folder.create()
    root = usable_root(folder, None)
    try:
        assert len(root) < 40
        assert Path(root).resolve() == folder.path
        assert Path(root).parent.stat().st_mode & 0o777 == 0o700
        assert usable_root(folder, root) == root, "a link that is still good is used again"
    finally:
        remove_root(folder, root)
    assert not Path(root).parent.exists()


def test_a_link_that_leads_elsewhere_is_neither_used_nor_removed(tmp_path: Path) -> None:
    folder = ClusterFolder.at(tmp_path / "two words")
    folder.create()
    trap = tmp_path / "trap"
    trap.mkdir(mode=0o700)
    (trap / "c").symlink_to("/etc")
    root = usable_root(folder, str(trap / "c"))
    try:
        assert root != str(trap / "c")
        remove_root(folder, str(trap / "c"))
        assert (trap / "c").is_symlink()
    finally:
        remove_root(folder, root)


def test_the_lock_admits_one_at_a_time(tmp_path: Path) -> None:
    folder = ClusterFolder.at(tmp_path)
    said = threading.Event()
    entered = threading.Event()

    def second() -> None:
        with folder.locked(lambda _: said.set()):
            entered.set()

    thread = threading.Thread(target=second)
    with folder.locked():
        thread.start()
        assert said.wait(5)
        assert not entered.is_set()
    assert entered.wait(5)
    thread.join()


def test_the_lock_of_a_removed_folder_is_an_error(tmp_path: Path) -> None:
    with (
        pytest.raises(ClusterError, match="removed"),
        ClusterFolder(tmp_path / "gone").locked(),
    ):
        pass
