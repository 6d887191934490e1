"""Scratch in common folders, where another user was first: left alone, one of our own used."""

from __future__ import annotations

import json
import os
import shutil
import stat
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from plans import example_plan
from sbtrain_jobs.node_agent.temporary import temporary_folder
from sbtrain_staging.cache.node_cache import NodeCache
from sbtrain_staging.commandline import main
from sbtrain_staging.errors import ScratchError
from sbtrain_staging.ranks.world import user_name
from sbtrain_staging.readers.reader import open_staged
from sbtrain_staging.reports.run_report import StagingReport, read_report
from staging_trees import snapshot, write_file

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be two users")
MALLORY, ADA = 64_001, 64_002


class Commons:
    """A folder like /tmp, and a source that all users may read."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.folder.chmod(0o1777)
        self.report = folder / "report.json"
        self.source = write_file(folder / "source" / "a.h5", 1000)
        self.source.parent.chmod(0o755)

    def to(self, uid: int) -> Path:
        """What `sbtrain-%u` comes to."""
        return self.folder / (f"sbtrain-{user_name({})}" if uid == 0 else f"sbtrain-{uid}")

    def words(self, template: str | None = None) -> list[str]:
        return ["--to", template or f"{self.folder}/sbtrain-%u"]

    def stage(self, uid: int, template: str | None = None) -> int:
        words = [*self.words(template), "--key", "k", "--report", str(self.report)]
        return as_user(uid, lambda: main(["run", *words, str(self.source)], {}))

    def staged(self, uid: int, template: str | None = None) -> StagingReport:
        assert self.stage(uid, template) == 0
        report = read_report(self.report)
        self.report.unlink()
        return report


def as_user(uid: int, step: Callable[[], int | None]) -> int:
    """Do it in a process of that user; its exit status."""
    child = os.fork()
    if child == 0:
        code = 99
        try:
            if uid:
                os.setgroups([])
                os.setgid(uid)
                os.setuid(uid)
            code = step() or 0
        except Exception:
            traceback.print_exc()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.fixture
def commons() -> Iterator[Commons]:
    folder = Path(tempfile.mkdtemp(prefix="commons-", dir="/tmp"))
    made = Commons(folder)
    # All is imported here: another user may not be allowed to read this Python's folder.
    (folder / "first").mkdir()
    assert (
        main(["run", *made.words(f"{folder}/first"), "--key", "k", str(made.source)], {}) == 0
    )
    shutil.rmtree(folder / "first")
    yield made
    shutil.rmtree(folder)


def poison(commons: Commons, uid: int) -> dict[bytes, tuple[object, ...]]:
    """Mallory takes the name, and puts a cache into it that holds another file."""
    place = commons.to(uid)
    honest = commons.source.read_bytes()
    times = commons.source.stat()
    assert commons.stage(uid, f"{commons.folder}/made-%u") == 0
    commons.report.unlink()
    made = commons.folder / place.name.replace("sbtrain", "made")
    made.rename(place)
    for path in (place, *place.rglob("*")):
        os.chown(path, MALLORY, MALLORY, follow_symlinks=False)
        if path.name == "a.h5":
            path.write_bytes(b"poison".ljust(len(honest)))
            os.utime(path, ns=(times.st_mtime_ns, times.st_mtime_ns))
    place.chmod(0o777)
    return snapshot(place)


@pytest.mark.parametrize("uid", [0, ADA])
def test_a_scratch_folder_of_another_user_is_left_alone(
    commons: Commons, uid: int, capfd: pytest.CaptureFixture[str]
) -> None:
    before = poison(commons, uid)
    capfd.readouterr()
    report = commons.staged(uid)
    said = capfd.readouterr().err
    assert f"{commons.to(uid)} belongs to another user" in said
    copy = Path(report.nodes[0].paths[0])
    own = commons.to(uid).with_name(f"{commons.to(uid).name}-1")
    assert own in copy.parents
    assert (own.stat().st_uid, stat.S_IMODE(own.stat().st_mode)) == (uid, 0o700)
    assert copy.read_bytes() == commons.source.read_bytes()
    assert commons.staged(uid).source_bytes_read == 0
    assert snapshot(commons.to(uid)) == before


def test_every_command_finds_the_folder_of_its_own(
    commons: Commons, capfd: pytest.CaptureFixture[str]
) -> None:
    poison(commons, 0)
    copy = Path(commons.staged(0).nodes[0].paths[0])
    capfd.readouterr()
    assert main(["status", *commons.words(), "--json"], {}) == 0
    (found,) = json.loads(capfd.readouterr().out)
    assert found["path"] == str(copy)
    with open_staged(commons.to(0), commons.source).open() as stream:
        assert stream.read() == commons.source.read_bytes()
    plan = example_plan(scratch_path=f"{commons.folder}/sbtrain-%u")
    with temporary_folder(plan, commons.folder, {}) as gained:
        assert Path(gained["TMPDIR"]).parent == copy.parents[3]
    assert main(["clean", *commons.words(), "--key", "k", "--all"], {}) == 0
    assert not copy.exists()


@pytest.mark.parametrize("kind", ["folder", "closed", "file", "link", "link to ours"])
def test_whatever_another_user_made(commons: Commons, kind: str) -> None:
    taken = commons.to(ADA)
    if kind in ("folder", "closed"):
        taken.mkdir(mode=0o700)
        taken.chmod(0o777 if kind == "folder" else 0o700)
    elif kind == "file":
        taken.touch()
    else:
        target = commons.folder / "target"
        target.mkdir()
        os.chown(target, ADA if kind == "link to ours" else MALLORY, -1)
        target.chmod(0o777)
        taken.symlink_to(target)
    os.chown(taken, MALLORY, MALLORY, follow_symlinks=False)
    copy = Path(commons.staged(ADA).nodes[0].paths[0])
    assert copy.parents[3].name == f"{taken.name}-1"
    taken.with_name(f"{taken.name}-0").mkdir()
    assert commons.staged(ADA).source_bytes_read == 0


def test_names_are_tried_until_one_is_free(commons: Commons) -> None:
    for name in ("", "-1", "-2"):
        taken = commons.folder / f"sbtrain-{ADA}{name}"
        taken.mkdir()
        os.chown(taken, MALLORY, MALLORY)
    copy = Path(commons.staged(ADA).nodes[0].paths[0])
    assert copy.parents[3].name == f"sbtrain-{ADA}-3"
    for name in ("", "-1"):
        (commons.folder / f"sbtrain-{ADA}{name}").rmdir()
    assert Path(commons.staged(ADA).nodes[0].paths[0]) != copy  # the name itself is free now
    for number in range(100):
        taken = commons.folder / (f"sbtrain-{MALLORY}-{number}" if number else "x")
        taken.mkdir()
        os.chown(taken, ADA, ADA)
    taken = commons.folder / f"sbtrain-{MALLORY}"
    taken.mkdir()
    os.chown(taken, ADA, ADA)
    assert commons.stage(MALLORY) == ScratchError.exit_code


def test_a_folder_below_the_users_is_looked_at_as_well(commons: Commons) -> None:
    above = commons.to(ADA)
    above.mkdir()
    os.chown(above, MALLORY, MALLORY)
    above.chmod(0o777)
    copy = Path(commons.staged(ADA, f"{commons.folder}/sbtrain-%u/%n").nodes[0].paths[0])
    assert copy.parents[4].name == f"{above.name}-1"


def test_a_named_folder_of_another_user_is_refused(
    commons: Commons, capfd: pytest.CaptureFixture[str]
) -> None:
    theirs = commons.folder / "theirs"
    theirs.mkdir()
    os.chown(theirs, MALLORY, MALLORY)
    for mode in (0o777, 0o1777):
        theirs.chmod(mode)
        assert commons.stage(ADA, str(theirs)) == ScratchError.exit_code
        assert commons.stage(0, str(theirs)) == ScratchError.exit_code
    assert f"--to a folder of your own, such as '{theirs}/%u'" in capfd.readouterr().err
    assert list(theirs.iterdir()) == []
    assert commons.stage(ADA, str(theirs) + "/%u") == 0


@pytest.mark.parametrize("kind", ["file", "dangling link"])
def test_what_of_ones_own_is_in_the_way_is_named(
    commons: Commons, kind: str, capfd: pytest.CaptureFixture[str]
) -> None:
    taken = commons.to(ADA)
    taken.touch() if kind == "file" else taken.symlink_to("nowhere")
    os.chown(taken, ADA, ADA, follow_symlinks=False)
    assert commons.stage(ADA) == ScratchError.exit_code
    said = capfd.readouterr().err
    assert f"cannot write {taken} on node" in said
    assert "it is in the way, and no folder" in said
    assert "hint: remove or rename it" in said
    assert commons.stage(ADA, str(commons.source)) == ScratchError.exit_code
    assert f"{commons.source} is no folder on node" in capfd.readouterr().err


def test_a_cache_folder_of_another_user_is_left_alone(
    commons: Commons, capfd: pytest.CaptureFixture[str]
) -> None:
    """Straight in a folder like /tmp."""
    taken = commons.folder / f"sbtrain-cache-{ADA}"
    taken.mkdir()
    os.chown(taken, MALLORY, MALLORY)
    taken.chmod(0o777)
    copy = Path(commons.staged(ADA, str(commons.folder)).nodes[0].paths[0])
    assert copy.parents[2].name == f"{taken.name}-1"
    assert f"{taken} belongs to another user; {taken}-1 is used" in capfd.readouterr().err
    assert list(taken.iterdir()) == []


def test_what_others_could_write_is_closed_and_looked_at(
    commons: Commons, capfd: pytest.CaptureFixture[str]
) -> None:
    copy = Path(commons.staged(ADA).nodes[0].paths[0])
    place, cache = copy.parents[3], copy.parents[2]
    for path in (place, cache, copy.parent):
        path.chmod(0o777)
    content = copy.read_bytes()
    copy.unlink()
    copy.write_bytes(content)  # of root's, who could change it any time
    os.utime(copy, ns=(commons.source.stat().st_mtime_ns,) * 2)
    copy.chmod(stat.S_IMODE(commons.source.stat().st_mode))
    capfd.readouterr()
    again = Path(commons.staged(ADA).nodes[0].paths[0])
    assert f"{place} could be written by others" in capfd.readouterr().err
    assert stat.S_IMODE(place.stat().st_mode) == 0o755
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700
    assert again.stat().st_uid == ADA


def test_a_link_of_ones_own_is_followed(commons: Commons) -> None:
    elsewhere = commons.folder / "elsewhere"
    elsewhere.mkdir()
    os.chown(elsewhere, ADA, ADA)
    commons.to(ADA).symlink_to(elsewhere)
    os.chown(commons.to(ADA), ADA, ADA, follow_symlinks=False)
    copy = Path(commons.staged(ADA).nodes[0].paths[0])
    assert NodeCache(elsewhere).root != copy.parents[2]  # of another uid here
    assert elsewhere in copy.resolve().parents
