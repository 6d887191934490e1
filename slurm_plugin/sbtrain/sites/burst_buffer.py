"""burst_buffer.lua for a site whose jobs want data on its burst tier before they start: the
text, from the site, as pure functions.

A job asks with lines of its script, one path each, which reaches to the end of the line:

    #BB_LUA sbtrain stage=/data/images

slurmctld runs the file on its own host, so the data goes to a tier that this host and all
nodes share, never to a node's own scratch. Each content is copied once, whoever's job asks
first among one user's; a job's end gives up its claim, and the copy stays for the next.
"""

from __future__ import annotations

from dataclasses import dataclass

from sbtrain.errors import SiteError
from sbtrain_perf.request import ClusterShape

LUA_NAME = "burst_buffer.lua"
CONF_NAME = "burst_buffer.conf"
DIRECTIVE = "BB_LUA"
STAGE_IN_LIMIT_S = 86_400
HOLD_S = 30 * 86_400  # a claim outlives the longest wait in the queue; teardown ends it


@dataclass(frozen=True, slots=True, kw_only=True)
class BurstBufferFiles:
    """The two files that belong beside slurm.conf, and what the admin does with them."""

    lua: str
    conf: str
    advice: str


def burst_buffer_files(
    shape: ClusterShape, *, burst_path: str | None, python: str
) -> BurstBufferFiles:
    """The files for a site.

    Args:
        burst_path: the site file's key of that name.
        python: the interpreter in which sbtrain is installed on slurmctld's host.

    Raises:
        SiteError: the site names no burst tier, or python is no absolute path.
    """
    if not burst_path:
        raise SiteError(
            f"the site {shape.name} has no burst_path",
            hint=f'add burst_path = "/..." to {shape.source}: a folder that slurmctld\'s '
            "host and all nodes share",
        )
    if not python.startswith("/"):
        raise SiteError(
            f"{python} is not the absolute path of a Python",
            hint="name with --python the interpreter that has sbtrain on slurmctld's host",
        )
    values = {
        "@SITE@": " ".join(shape.name.split()),
        "@PYTHON@": lua_string(python),
        "@TO@": lua_string(f"{burst_path.rstrip('/')}/%u"),
        "@HOLD@": str(HOLD_S),
    }
    lua = _LUA
    for mark, value in values.items():
        lua = lua.replace(mark, value)
    conf = f"Directive={DIRECTIVE}\nStageInTimeout={STAGE_IN_LIMIT_S}\n"
    return BurstBufferFiles(
        lua=lua, conf=conf, advice=_ADVICE.format(burst=burst_path, python=python)
    )


def lua_string(text: str) -> str:
    """A Lua literal of any text, byte for byte."""
    plain = {ord(letter) for letter in " /%._-+:,@=~"}
    return (
        '"'
        + "".join(
            chr(byte)
            if byte < 128 and (chr(byte).isalnum() or byte in plain)
            else f"\\{byte:03d}"
            for byte in text.encode("utf-8", errors="surrogateescape")
        )
        + '"'
    )


_ADVICE = """\
To use it:
1. Put burst_buffer.lua and burst_buffer.conf beside slurm.conf on slurmctld's host.
2. Add to slurm.conf, on all hosts: BurstBufferType=burst_buffer/lua
3. Make {burst} a folder in which every user may make one of his own (mode 1777).
4. Where slurmctld does not run as the jobs' own user, let it stage as that user. In sudoers,
   for SlurmUser "slurm", in one line:
   slurm ALL=(ALL:ALL) NOPASSWD: {python} -P -m sbtrain_staging *
5. Restart slurmctld. A job asks with lines such as
   #BB_LUA sbtrain stage=/data/images
   and finds the copies in SBTRAIN_STAGED (all, a colon between them), SBTRAIN_STAGED_1, ...
"""

# What comes from a user reaches the shell in one place, `quoted`: between single quotes no
# character but the single quote means anything to sh. NUL and line breaks are refused.
_LUA = r"""-- Written by sbtrainctl site burst-buffer for @SITE@. Stages what jobs ask for with
--   #BB_LUA sbtrain stage=/path
-- onto the burst tier before they start, as the job's user.
local PYTHON = @PYTHON@
local TO = @TO@
local HOLD_S = "@HOLD@"
local MOST_PATHS = 64

local function say(text) slurm.log_info("sbtrain burst buffer: %s", text) end

local function quoted(word)
  assert(not word:find("[%z\r\n]"), "a line break or NUL")
  return "'" .. word:gsub("'", "'\\''") .. "'"
end

local function whole(value)
  local text = tostring(value)
  assert(text:match("^%d+$"), "not a number: " .. text)
  return text
end

-- The paths that a script asks for, or nil and what is wrong.
local function wanted(script_path)
  local file = io.open(script_path, "r")
  if not file then return nil, "the job script cannot be read" end
  local paths = {}
  for line in file:lines() do
    line = line:gsub("\r$", "")
    local words = line:match("^#BB_LUA%s+sbtrain%s+(.-)%s*$")
    if words then
      local path = words:match("^stage=(.+)$")
      local problem = nil
      if not path then problem = "write #BB_LUA sbtrain stage=/path"
      elseif path:sub(1, 1) ~= "/" then problem = "the path must start with /"
      elseif path:find("%c") or path:find("%z") then problem = "control characters"
      elseif ("/" .. path .. "/"):find("/%.%./") then problem = "the path must not hold .."
      elseif #paths == MOST_PATHS then problem = "more than " .. MOST_PATHS .. " paths"
      end
      if problem then file:close() return nil, "#BB_LUA sbtrain: " .. problem end
      paths[#paths + 1] = path
    end
  end
  file:close()
  return paths
end

local function beside(script_path, job_id, what)
  return script_path:match("^(.*/)") .. "sbtrain-" .. whole(job_id) .. "." .. what
end

local function read(path)
  local file = io.open(path, "r")
  if not file then return nil end
  local text = file:read("*a")
  file:close()
  return text
end

local function own_uid()
  local pipe = assert(io.popen("id -u"))
  local uid = pipe:read("*l")
  pipe:close()
  return whole(uid)
end

-- Run staging as the job's user; whether it ended well. Lua 5.1 returns a status, later
-- ones true or nil.
local function staging(uid, words, out, errors)
  local command = {"umask 077; exec"}
  if uid ~= own_uid() then
    command[#command + 1] = "sudo -n -u " .. quoted("#" .. uid) .. " --"
  end
  command[#command + 1] = quoted(PYTHON) .. " -P -m sbtrain_staging"
  for _, word in ipairs(words) do command[#command + 1] = quoted(word) end
  command[#command + 1] = "</dev/null >" .. quoted(out) .. " 2>" .. quoted(errors)
  local status = os.execute(table.concat(command, " "))
  return status == true or status == 0
end

local function guarded(step)
  return function(...)
    local fine, status, text = pcall(step, ...)
    if not fine then
      say(tostring(status))
      return slurm.ERROR, "sbtrain: " .. tostring(status)
    end
    return status, text or "" -- Slurm takes no nil
  end
end

slurm_bb_job_process = guarded(function(script_path)
  local paths, problem = wanted(script_path)
  if not paths then return slurm.ERROR, problem end
  return slurm.SUCCESS
end)

slurm_bb_setup = guarded(function(job_id, uid, _gid, _pool, _bytes, script_path)
  local file = assert(io.open(beside(script_path, job_id, "uid"), "w"))
  file:write(whole(uid))
  file:close()
  return slurm.SUCCESS
end)

slurm_bb_data_in = guarded(function(job_id, script_path)
  local paths, problem = wanted(script_path)
  if not paths then return slurm.ERROR, problem end
  if #paths == 0 then return slurm.SUCCESS end
  local uid = whole(read(beside(script_path, job_id, "uid")))
  local words = {"run", "--to", TO, "--key", "slurm-" .. whole(job_id), "--hold", HOLD_S,
    "--print-paths", "--"}
  for _, path in ipairs(paths) do words[#words + 1] = path end
  local out = beside(script_path, job_id, "paths")
  local errors = beside(script_path, job_id, "err")
  say("staging for job " .. job_id)
  if staging(uid, words, out, errors) then return slurm.SUCCESS end
  local said = (read(errors) or ""):match("error: ([^\n]*)") or "staging failed"
  say("job " .. job_id .. ": " .. said)
  return slurm.ERROR, "sbtrain: " .. said
end)

slurm_bb_test_data_in = guarded(function() return slurm.SUCCESS, "" end)

slurm_bb_paths = guarded(function(job_id, script_path, path_file)
  local file = assert(io.open(path_file, "w"))
  local all, count = {}, 0
  for path in (read(beside(script_path, job_id, "paths")) or ""):gmatch("[^\n]+") do
    count = count + 1
    all[count] = path
    file:write("SBTRAIN_STAGED_" .. count .. "=" .. path .. "\n")
  end
  if count > 0 then file:write("SBTRAIN_STAGED=" .. table.concat(all, ":") .. "\n") end
  file:close()
  return slurm.SUCCESS
end)

-- The copies stay for the next job, until room is needed; only this job's claim ends.
slurm_bb_job_teardown = guarded(function(job_id, script_path)
  local uid = read(beside(script_path, job_id, "uid"))
  local fine = true
  if uid then
    local words = {"clean", "--to", TO, "--key", "slurm-" .. whole(job_id)}
    fine = staging(whole(uid), words, "/dev/null", beside(script_path, job_id, "err"))
  end
  if not fine then say("job " .. job_id .. ": its claim ends by itself, later") end
  for _, what in ipairs({"uid", "paths", "err"}) do
    os.remove(beside(script_path, job_id, what))
  end
  return slurm.SUCCESS
end)

function slurm_bb_pools() return slurm.SUCCESS end
function slurm_bb_real_size() return slurm.SUCCESS, "0" end
function slurm_bb_pre_run() return slurm.SUCCESS end
function slurm_bb_post_run() return slurm.SUCCESS end
function slurm_bb_data_out() return slurm.SUCCESS end
function slurm_bb_test_data_out() return slurm.SUCCESS end
function slurm_bb_get_status() return slurm.SUCCESS, "" end
"""
