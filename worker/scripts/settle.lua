-- Settles messages of one lease: removes them, does the project's bookkeeping, pushes what follows.
-- KEYS: inflight, delayed, dead. ARGV: JSON list of entries, most dead jobs kept, most bytes of their messages.
-- An entry has a tag and an action:
--   done | failed | not_ready  {project?, stage, item, pushes, progress?, counts?, continuation?, continue_at, report?,
--                                keeps_message?}
--   drop           nobody wants it done any more; only a job without a project
--   requeue        {attempts, lost?, estimate?, last_end?, lost_on? (JSON texts)}
--   park           {attempts, delay_ms | due_ms (by the server's clock)}
--   batch          (no tag) {project, kind, reserved_bytes, peak_bytes, ratio_permille, items?, busy_us?}
-- A tag that the lease no longer holds is refused: its message was given to somebody else.
-- Returns {settled, refused, list, list, ...}: the lists that something was pushed to.
local settled, refused = 0, 0
-- Added up: a command for each would be a third of what settling a job of nobody costs.
local left = {done = 0, not_ready = 0, failed = 0, dropped = 0}
local FINISHES = {done = true, failed = true, not_ready = true}

-- What a cancelled project still had running is counted where it is done; nothing follows from it.
local function finish_cancelled(entry)
  drop_item(entry.project, entry.stage, entry.item)
  if entry.action == 'done' then
    redis.call('HINCRBY', PREFIX .. entry.project, entry.stage .. ':done', 1)
  end
end

-- Somebody started the project while it ran: it looks at everything once more before it is done.
local function look_again(project)
  local first = redis.call('HGET', project, 'again')
  if not first or redis.call('HGET', project, 'state') ~= 'done' then return end
  redis.call('HDEL', project, 'again')
  redis.call('HSET', project, 'state', 'running')
  push_job(cjson.decode(first))
end

local function finish_item(entry)
  local project = PREFIX .. entry.project
  if redis.call('SREM', project .. ':' .. entry.stage .. ':todo', entry.item) == 1 then
    redis.call('HINCRBY', project, 'outstanding', -1)
    redis.call('HINCRBY', project, entry.stage .. ':' .. entry.action, 1)
    redis.call('HSET', project, entry.stage .. ':finished_ms', now_ms())
  end
  for _, job in ipairs(entry.pushes or {}) do push_job(job) end
  if entry.stage == 'plan' and entry.action == 'failed' then
    redis.call('HSET', project, 'state', 'failed', 'failure', entry.report or '')
  end
  for name, value in pairs(entry.progress or {}) do redis.call('HSET', project, name, value) end
  for name, more in pairs(entry.counts or {}) do redis.call('HINCRBY', project, name, more) end
  look_again(project)
  if entry.continuation then
    redis.call('HSET', project, 'next_expand', entry.continuation, 'continue_at', entry.continue_at)
  end
  continue_project(project)
  redis.call('EXPIRE', project, PROJECT_TTL_SECONDS)
end

local function record_batch(entry)
  local project, field = PREFIX .. entry.project, 'kind:' .. entry.kind
  redis.call('HINCRBY', project, field .. ':batches', 1)
  -- What found everything done tells nothing of the time that work takes.
  if (entry.items or 0) > 0 then
    redis.call('HINCRBY', project, field .. ':items', entry.items)
    redis.call('HINCRBY', project, field .. ':busy_us', entry.busy_us)
  end
  local worst = tonumber(redis.call('HGET', project, field .. ':ratio_permille') or -1)
  if entry.ratio_permille > worst then
    redis.call('HSET', project, field .. ':ratio_permille', entry.ratio_permille,
      field .. ':reserved_bytes', entry.reserved_bytes, field .. ':peak_bytes', entry.peak_bytes)
  end
  if entry.peak_bytes > tonumber(redis.call('HGET', project, 'peak_bytes') or 0) then
    redis.call('HSET', project, 'peak_bytes', entry.peak_bytes)
  end
end

local function give_back(entry, payload)
  local text = bump(payload, entry.attempts or 0, entry.lost or 0,
    {estimate = entry.estimate, last_end = entry.last_end, lost_on = entry.lost_on})
  if entry.project and is_cancelled(entry.project) then
    return drop_item(entry.project, entry.stage, entry.item)
  end
  if entry.project and (entry.attempts or 0) > 0 then
    redis.call('HINCRBY', PREFIX .. entry.project, 'retried', 1)
  end
  if entry.action == 'park' then
    redis.call('ZADD', KEYS[2], entry.due_ms or now_ms() + entry.delay_ms, list_of(entry.tag) .. '\0' .. text)
  else
    redis.call('RPUSH', list_of(entry.tag), text)
    pushed_to[list_of(entry.tag)] = true
  end
end

-- Longer messages came from a client that does not ask us; whoever sent one can send it again.
local LONGEST_KEPT = 64 * 1024

local function keep_message(serial, list, payload)
  local _, _, _, rest = open_envelope(payload)
  if #rest + 1 > LONGEST_KEPT then return end
  local message = list .. '\0{' .. rest
  redis.call('HSET', DEAD_MESSAGES, serial, message)
  count_total('kept_bytes', #message)
end

local function is_over_its_bounds()
  return redis.call('LLEN', KEYS[3]) > tonumber(ARGV[2])
    or tonumber(redis.call('HGET', TOTALS, 'kept_bytes') or 0) > tonumber(ARGV[3])
end

-- Somebody has deleted the list, and with it what tells of the messages.
local function forget_all_messages()
  redis.call('DEL', DEAD_MESSAGES)
  redis.call('HDEL', TOTALS, 'kept_bytes')
end

-- Adds a report to the list of dead jobs, with its number and the time; the oldest make room for it.
local function bury(entry, payload)
  local serial = count_total('failed', 1)
  local stamp = string.format('{"serial":%.0f,"at_ms":%.0f,', serial, now_ms())
  redis.call('LPUSH', KEYS[3], stamp .. string.sub(entry.report, 2))
  if entry.keeps_message then keep_message(serial, list_of(entry.tag), payload) end
  while is_over_its_bounds() do
    local oldest = redis.call('RPOP', KEYS[3])
    if not oldest then return forget_all_messages() end
    forget_message(oldest)
    count_total('forgotten', 1)
  end
end

for _, entry in ipairs(cjson.decode(ARGV[1])) do
  if entry.action == 'batch' then
    record_batch(entry)
  else
    local payload = redis.call('HGET', KEYS[1], entry.tag)
    if not payload then
      refused = refused + 1
    else
      settled = settled + 1
      redis.call('HDEL', KEYS[1], entry.tag)
      if FINISHES[entry.action] and entry.project and is_cancelled(entry.project) then
        finish_cancelled(entry)
      elseif FINISHES[entry.action] then
        if entry.project then finish_item(entry) end
        if entry.report then bury(entry, payload) else left[entry.action] = left[entry.action] + 1 end
      elseif entry.action == 'drop' then
        left.dropped = left.dropped + 1
      else
        give_back(entry, payload)
      end
    end
  end
end
for name, more in pairs(left) do
  if more > 0 then count_total(name, more) end
end
return {settled, refused, unpack(names_of_pushed_lists())}
