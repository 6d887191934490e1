"""burst_buffer.lua: its text, and what it does, run by a real Lua with real shells."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from sbtrain.errors import SiteError
from sbtrain.sites.burst_buffer import BurstBufferFiles, burst_buffer_files, lua_string
from sbtrain.sites.layers import load_site
from sbtrain_jobs.process import run_command

GOLDEN = Path(__file__).parents[2] / "golden" / "burst_buffer.lua"
LUA = shutil.which("lua") or shutil.which("lua5.1")

# As slurmctld calls it: the calls of one job, in order, told on stdout.
CALLS = """
slurm = {SUCCESS = 0, ERROR = -1}
function slurm.log_info(...) io.stderr:write(string.format(...), "\\n") end
dofile(arg[1])
local script, paths_file, uid = arg[2], arg[3], tonumber(arg[4])
local function told(name, ...)
  local status, text = _G["slurm_bb_" .. name](...)
  print(name, status, text)
  assert(type(text) == "string", "Slurm takes no " .. type(text))
  return status
end
if told("job_process", script) ~= 0 then os.exit(0) end
told("setup", 7, uid, uid, "", "0", script)
if told("data_in", 7, script) == 0 then told("paths", 7, script, paths_file, uid, uid) end
if arg[5] ~= "stay" then told("job_teardown", 7, script, "false") end
"""


def files_for(burst: str, python: str = sys.executable) -> BurstBufferFiles:
    return burst_buffer_files(load_site("private", {}).shape, burst_path=burst, python=python)


def played(folder: Path, script: str, *, lua: str, stay: bool = False) -> str:
    """What slurmctld would be told of a job with that script."""
    if LUA is None:
        pytest.skip("no lua program is installed")
    (folder / "bb.lua").write_text(lua)
    (folder / "calls.lua").write_text(CALLS)
    job = folder / "job.7"
    job.mkdir(exist_ok=True)
    (job / "script").write_bytes(script.encode(errors="surrogateescape"))
    done = run_command(
        [
            LUA,
            *(str(folder / "calls.lua"), str(folder / "bb.lua"), str(job / "script")),
            *(str(folder / "paths"), str(os.getuid())),
            *(["stay"] if stay else []),
        ],
        timeout_s=60,
        cwd=folder,
    )
    return done.stdout + done.stderr


def test_the_text_is_a_pure_function_of_the_site() -> None:
    files = files_for("/burst", "/opt/sbtrain/bin/python3")
    assert files.lua == GOLDEN.read_text()
    assert files.conf.splitlines()[0] == "Directive=BB_LUA"
    assert "BurstBufferType=burst_buffer/lua" in files.advice


def test_a_site_without_a_burst_tier_says_what_to_add() -> None:
    with pytest.raises(SiteError, match="no burst_path") as caught:
        burst_buffer_files(
            load_site("private", {}).shape, burst_path=None, python="/usr/bin/python3"
        )
    assert "burst_path =" in caught.value.hint


def test_a_relative_python_is_refused() -> None:
    with pytest.raises(SiteError, match="absolute path"):
        files_for("/burst", "python3")


@pytest.mark.parametrize("text", ['a"b', "a\\b", "]] end os.exit()", "naïve\n", "--[["])
def test_any_text_is_one_lua_literal(text: str) -> None:
    if LUA is None:
        pytest.skip("no lua program is installed")
    said = run_command([LUA, "-e", f"io.write({lua_string(text)})"], timeout_s=10)
    assert said.stdout == text


HOSTILE = [
    "two  words",
    "it's",
    "$(touch owned)",
    "`touch owned`",
    "; touch owned #",
    "' ; touch owned ; '",
    '"; touch owned; "',
    "a\\",
    "-rf",
    "%s%n",
    "*",
    "ünïcode",
]


@pytest.mark.parametrize("name", HOSTILE)
def test_no_path_is_a_command(tmp_path: Path, name: str) -> None:
    (tmp_path / "burst").mkdir()
    data = tmp_path / "data"
    data.mkdir()
    (data / name).write_text("rows")
    lua = files_for(str(tmp_path / "burst")).lua
    script = f"#!/bin/sh\n#BB_LUA sbtrain stage={data}/{name}\nexit\n"
    said = played(tmp_path, script, lua=lua)
    assert "data_in\t0" in said, said
    staged = dict(line.split("=", 1) for line in (tmp_path / "paths").read_text().splitlines())
    assert Path(staged["SBTRAIN_STAGED"]).read_text() == "rows"
    assert staged["SBTRAIN_STAGED"] == staged["SBTRAIN_STAGED_1"]
    assert Path(staged["SBTRAIN_STAGED"]).is_relative_to(tmp_path / "burst")
    assert not list(tmp_path.rglob("owned"))
    assert [path.name for path in (tmp_path / "job.7").iterdir()] == ["script"]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("sbtrain stage=data/x", "must start with /"),
        ("sbtrain stage=", "write #BB_LUA"),
        ("sbtrain remove=/x", "write #BB_LUA"),
        ("sbtrain stage=/data/../etc/shadow", "must not hold .."),
        ("sbtrain stage=/data/\x1b[2J", "control characters"),
    ],
)
def test_a_wrong_line_refuses_the_job(tmp_path: Path, words: str, problem: str) -> None:
    said = played(tmp_path, f"#!/bin/sh\n#BB_LUA {words}\n", lua=files_for("/burst").lua)
    assert "job_process\t-1" in said
    assert problem in said


def test_a_job_that_asks_for_nothing_runs_no_program(tmp_path: Path) -> None:
    said = played(
        tmp_path, "#!/bin/sh\n", lua=files_for("/nowhere", "/no/python").lua, stay=True
    )
    assert "data_in\t0" in said
    assert (tmp_path / "paths").read_text() == ""


def test_data_that_is_not_there_is_stagings_own_error(tmp_path: Path) -> None:
    (tmp_path / "burst").mkdir()
    script = f"#!/bin/sh\n#BB_LUA sbtrain stage={tmp_path}/gone\n"
    said = played(tmp_path, script, lua=files_for(str(tmp_path / "burst")).lua)
    assert "data_in\t-1\tsbtrain: " in said
    assert "gone" in said


def test_a_claim_ends_with_the_job_and_the_copy_stays(tmp_path: Path) -> None:
    from sbtrain_staging.cache.housekeeping import copies_on
    from sbtrain_staging.ranks.world import user_name

    (tmp_path / "burst").mkdir()
    (tmp_path / "x").write_text("rows")
    lua = files_for(str(tmp_path / "burst")).lua
    script = f"#!/bin/sh\n#BB_LUA sbtrain stage={tmp_path}/x\n"
    scratch = tmp_path / "burst" / user_name(os.environ)
    played(tmp_path, script, lua=lua, stay=True)
    assert [(copy.state, copy.pinned) for copy in copies_on(scratch)] == [("ready", True)]
    played(tmp_path, script, lua=lua)
    assert [(copy.state, copy.pinned) for copy in copies_on(scratch)] == [("ready", False)]
