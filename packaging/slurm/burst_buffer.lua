--[[
Slurm's burst_buffer/lua plugin for weft: a job says in its script, or by sbatch --bb,

    #BB_LUA weft stage_in=SOURCE:TARGET stage_out=SOURCE:TARGET rankfs=SIZE

and slurmctld copies in before the job gets its nodes, and copies out after its end. stage_in and stage_out can come several times.
rankfs=SIZE is what each rank gets as its own file system; prolog.sh makes it.

This file lies beside slurm.conf. What a job script says is never part of a command but as one quoted argument, and stage.sh copies as the
job's user. It runs nothing in slurmctld itself: what takes time, Slurm calls in a process of its own.
--]]

local CONF = os.getenv("WEFT_RANKFS_CONF") or "/etc/weft/rankfs.conf"
local DIRECTIVE = "BB_LUA"
local COPIES_MAX = 32
local LINE_BYTES_MAX = 8192
local MESSAGE_BYTES_MAX = 400
-- How long a job waits at most until slurmctld has written down that it has something to stage out.
local SAVED_SECONDS_MAX = 65
local UNITS = { K = 1024, M = 1024 ^ 2, G = 1024 ^ 3, T = 1024 ^ 4 }

-- Lines of NAME=VALUE.
local function conf()
  local values = {}
  local file = io.open(CONF)
  if file then
    for line in file:lines() do
      local name, value = line:match("^([A-Z_]+)=(%S*)%s*$")
      if name then values[name] = value end
    end
    file:close()
  end
  return values
end

-- "2G" in bytes, or nil.
local function bytes(size)
  local number, unit = (size or ""):match("^(%d+)([KMGT])$")
  if not number or #number > 6 or tonumber(number) == 0 then return nil end
  return tonumber(number) * UNITS[unit]
end

-- One argument for the shell, whatever is in it.
local function quoted(word)
  return "'" .. word:gsub("'", "'\\''") .. "'"
end

-- Why a rank cannot have so much, or nil.
local function refusal_of_size(size)
  local values = conf()
  local limit = values.RANKFS_MAX or values.RANKFS_SIZE
  local most = bytes(limit)
  local wanted = bytes(size)
  if not wanted then return "rankfs=" .. size .. ": a size is a number with K, M, G or T, as 2G" end
  if not most then return "rankfs: ranks get no file systems here" end
  if wanted > most then return "rankfs=" .. size .. ": a rank can have " .. limit .. " at most" end
  return nil
end

-- Two absolute paths. Blanks cannot be in them, as they part words, nor colons.
local function copy_of(value)
  local from, to = value:match("^(/[^:%s%c]*):(/[^:%s%c]*)$")
  if not from then return nil end
  return { from = from, to = to }
end

-- What one directive asks for goes into `request`; returns why not, or nil.
local function read_directive(line, request)
  if #line > LINE_BYTES_MAX then return "a line has more than " .. LINE_BYTES_MAX .. " bytes" end
  local is_first = true
  for word in line:gmatch("%S+") do
    local name, value = word:match("^([a-z_]+)=(.*)$")
    if is_first then
      if word ~= "weft" then return "'" .. word .. "' is not known, only weft is" end
    elseif name == "rankfs" then
      if request.size then return "rankfs stands there twice" end
      local refusal = refusal_of_size(value)
      if refusal then return refusal end
      request.size = value
    elseif name == "stage_in" or name == "stage_out" then
      local copy = copy_of(value)
      if not copy then return word .. ": it is " .. name .. "=SOURCE:TARGET, two absolute paths" end
      table.insert(request[name], copy)
      if #request.stage_in + #request.stage_out > COPIES_MAX then return "more than " .. COPIES_MAX .. " copies" end
    else
      return "'" .. word .. "' is not known"
    end
    is_first = false
  end
  if is_first then return "nothing is asked for" end
  return nil
end

-- What a job script asks for, read as Slurm reads it: up to the first line that is no comment, empty ones left out, and a line that ends
-- with a backslash goes on in the next directive. Returns a request, or nil and why not.
local function read_script(path)
  local request = { stage_in = {}, stage_out = {} }
  local file = io.open(path)
  if not file then return nil, "the job script cannot be read" end
  local text = file:read("*a")
  file:close()
  local begun = nil
  local directives = {}
  for line in text:gmatch("[^\n]+") do
    if line:sub(1, 1) ~= "#" then break end
    local rest = line:match("^#" .. DIRECTIVE .. "(.*)$")
    if rest then
      line = (begun or "") .. rest
      begun = line:match("^(.*)\\$")
      if not begun then table.insert(directives, line) end
    elseif begun then
      table.insert(directives, begun)
      begun = nil
    end
  end
  if begun then table.insert(directives, begun) end
  for _, directive in ipairs(directives) do
    local refusal = read_directive(directive, request)
    if refusal then return nil, "weft: " .. refusal end
  end
  return request
end

-- Runs stage.sh with arguments, each of them quoted. Returns whether it went well, and the end of what it said, in one line.
local function run(...)
  local words = {}
  for _, word in ipairs({ ... }) do table.insert(words, quoted(tostring(word))) end
  local script = quoted((conf().SLURM_SCRIPTS or "/usr/share/doc/weft/slurm") .. "/stage.sh")
  local command = "[ \"$(id -u)\" = 0 ] || set -- sudo -n; \"$@\" " .. script .. " " .. table.concat(words, " ")
  local pipe = io.popen("{ " .. command .. "; } 2>&1 < /dev/null; echo \"status $?\"")
  if not pipe then return false, "weft: no process could be started" end
  local said = pipe:read("*a")
  pipe:close()
  local before, status = said:match("^(.-)\n?status (%d+)\n$")
  if not before then return false, "weft: the stager was killed" end
  before = before:gsub("%s*\n%s*", "; "):gsub("%c", "?")
  if #before > MESSAGE_BYTES_MAX then before = "..." .. before:sub(-MESSAGE_BYTES_MAX) end
  return status == "0", before
end

-- Runs all copies of one direction, also those after one that fails; the first failure is told.
local function run_copies(direction, job_id, copies)
  local failure = nil
  for _, copy in ipairs(copies) do
    local is_well, said = run(direction, job_id, copy.from, copy.to)
    if not is_well then
      slurm.log_error("weft: job %s: stage_%s=%s:%s: %s", job_id, direction, copy.from, copy.to, said)
      failure = failure or ("stage_" .. direction .. "=" .. copy.from .. ":" .. copy.to .. ": " .. said)
    end
  end
  if failure then return slurm.ERROR, failure end
  return slurm.SUCCESS
end

-- slurmctld writes every 30 s which jobs have burst buffers. A job that it has not written down is not staged out if slurmctld is killed
-- and started again, so none runs before.
local function wait_until_saved(job_id)
  local settings = io.popen("scontrol show config 2> /dev/null")
  local directory = settings and settings:read("*a"):match("StateSaveLocation%s*=%s*(%S+)")
  if settings then settings:close() end
  if not directory then return end
  -- The name of the job as Slurm packs a string: its length in four bytes, and a zero at its end.
  local packed = "\0\0\0" .. string.char(#job_id + 1) .. job_id .. "\0"
  for _ = 1, SAVED_SECONDS_MAX do
    local file = io.open(directory .. "/burst_buffer_lua_state", "rb")
    local state = file and file:read("*a") or ""
    if file then file:close() end
    if state:find(packed, 1, true) then return end
    os.execute("sleep 1")
  end
  slurm.log_info("weft: job %s runs though slurmctld has not written its burst buffer down", job_id)
end

-- At sbatch, inside slurmctld: a refusal is what the user sees at once.
function slurm_bb_job_process(job_script)
  local request, refusal = read_script(job_script)
  if not request then return slurm.ERROR, refusal end
  return slurm.SUCCESS
end

function slurm_bb_pools()
  return slurm.SUCCESS
end

function slurm_bb_setup(job_id, uid, gid, pool, size, job_script)
  local request, refusal = read_script(job_script)
  if not request then return slurm.ERROR, refusal end
  local is_well, said = run("setup", job_id, uid, gid, request.size or "-")
  if not is_well then return slurm.ERROR, said end
  return slurm.SUCCESS
end

function slurm_bb_data_in(job_id, job_script)
  local request, refusal = read_script(job_script)
  if not request then return slurm.ERROR, refusal end
  local status, failure = run_copies("in", job_id, request.stage_in)
  if status == slurm.SUCCESS and #request.stage_out > 0 then wait_until_saved(job_id) end
  if failure then return status, failure end
  return status
end

function slurm_bb_real_size()
  return slurm.SUCCESS
end

function slurm_bb_paths()
  return slurm.SUCCESS
end

-- The limit may have come down since sbatch: the job is told here, where a prolog that fails would take its machine out of service.
function slurm_bb_pre_run(job_id, job_script)
  local request, refusal = read_script(job_script)
  if not request then return slurm.ERROR, refusal end
  return slurm.SUCCESS
end

function slurm_bb_post_run()
  return slurm.SUCCESS
end

function slurm_bb_data_out(job_id, job_script)
  local request, refusal = read_script(job_script)
  if not request then return slurm.ERROR, refusal end
  return run_copies("out", job_id, request.stage_out)
end

-- Nothing that was copied is removed.
function slurm_bb_job_teardown(job_id)
  local is_well, said = run("teardown", job_id)
  if not is_well then return slurm.ERROR, said end
  return slurm.SUCCESS
end

function slurm_bb_get_status()
  return slurm.SUCCESS, "weft\n"
end
