-- Written by sbtrainctl site burst-buffer for private. Stages what jobs ask for with
--   #BB_LUA sbtrain stage=/path
-- onto the burst tier before they start, as the job's user.
local PYTHON = "/opt/sbtrain/bin/python3"
local TO = "/burst/%u"
local HOLD_S = "2592000"
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
