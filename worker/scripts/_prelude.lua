-- Shared by every script: server time, the envelope, the lease, the project's bookkeeping.
--
-- A payload is kombu's JSON text and is never re-encoded (cjson turns [] into {}
-- and loses integers above 2^53). What the queue itself must remember of a
-- message is spliced over the text's first brace, where kombu ignores it:
--   {"tiepoint":{"attempts":1,"lost":0,"estimate":{}},"body":...
-- attempts: those that ended without a result; lost: nodes lost while holding it;
-- estimate: a larger need found on the way ({} = none). Behind it there may be
-- "last_end":{...}, how the last attempt without a result ended, and "lost_on":"...", the last node that was lost.

local function now_ms()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

local ENVELOPE = '^{"tiepoint":{"attempts":(%d+),"lost":(%d+),"estimate":(%b{})()'
local OPTIONAL_FIELDS = {{'last_end', '(%b{})'}, {'lost_on', '("[%w._-]+")'}}

-- Not every client begins with the brace: JSON may have spaces before it.
local function behind_first_brace(payload) return string.sub(payload, string.match(payload, '^%s*{()') or 2) end

-- Returns attempts, lost nodes, estimate, the text behind the envelope, and the optional fields that are there.
local function open_envelope(payload)
  local attempts, lost, estimate, position = string.match(payload, ENVELOPE)
  if not attempts then return 0, 0, '{}', behind_first_brace(payload), {} end
  local optional = {}
  for _, field in ipairs(OPTIONAL_FIELDS) do
    local value, behind = string.match(payload, '^,"' .. field[1] .. '":' .. field[2] .. '()', position)
    if value then optional[field[1]], position = value, behind end
  end
  if string.sub(payload, position, position + 1) ~= '},' then return 0, 0, '{}', behind_first_brace(payload), {} end
  return tonumber(attempts), tonumber(lost), estimate, string.sub(payload, position + 2), optional
end

-- Returns a payload with its counts raised; of ``new`` estimate, last_end and lost_on take the place of the old.
local function bump(payload, more_attempts, more_lost, new)
  local attempts, lost, estimate, rest, optional = open_envelope(payload)
  local text = '{"tiepoint":{"attempts":' .. (attempts + more_attempts) .. ',"lost":' .. (lost + more_lost)
    .. ',"estimate":' .. (new.estimate or estimate)
  for _, field in ipairs(OPTIONAL_FIELDS) do
    local value = new[field[1]] or optional[field[1]]
    if value then text = text .. ',"' .. field[1] .. '":' .. value end
  end
  return text .. '},' .. rest
end

-- What a contract tells of time, as JSON; '' = nothing. A capture that is not told, or lies ahead, is now.
local function contract_of(headers)
  local told = {}
  for _, name in ipairs({'period_ms', 'deadline_ms', 'max_age_ms', 'supersede_key'}) do
    if headers[name] ~= nil and headers[name] ~= cjson.null then told[name] = headers[name] end
  end
  if next(told) == nil then return '' end
  told.captured_at_ms = math.min(tonumber(headers.captured_at_ms) or now_ms(), now_ms())
  -- No number that is none can be encoded; whoever claims the message refuses it by its header's name.
  local encodable, text = pcall(cjson.encode, told)
  return encodable and text or ''
end

-- What a claim compares, estimate text ('' = the kind's default) and mark; and class, project and contract.
-- mark: ok | solo (a suspect, runs alone) | bad (cannot be read; failed at once); moved | moved_solo: the
-- same, and the estimate is not its sender's, but one that a node has moved to (only scripts write those).
local function head_of(payload)
  local attempts, lost, moved = open_envelope(payload)
  local readable, message = pcall(cjson.decode, payload)
  if not readable or type(message) ~= 'table' or type(message.headers) ~= 'table' then
    return '', 'bad', '', '', ''
  end
  local estimate = message.headers.estimate
  if estimate == nil or estimate == cjson.null then estimate = '' end
  if moved ~= '{}' then estimate = moved end
  if type(estimate) ~= 'string' then return '', 'bad', '', '', '' end
  local class = message.headers.class
  if type(class) ~= 'string' then class = '' end
  local project = message.headers.project
  if type(project) ~= 'string' then project = '' end
  local mark = 'ok'
  if attempts > 0 or lost >= 2 then mark = 'solo' end
  if moved ~= '{}' then mark = mark == 'ok' and 'moved' or 'moved_solo' end
  return estimate, mark, class, project, contract_of(message.headers)
end

-- A tag is <incarnation serial>:<index>:<list>; the list is where the message came from.
local function list_of(tag) return string.match(tag, '^[^:]*:%d+:(.*)$') end

local function lease_is_live(leases, incarnation)
  local expiry = redis.call('ZSCORE', leases, incarnation)
  return expiry and tonumber(expiry) >= now_ms()
end

local PREFIX = 'tiepoint:project:'
-- A project's live state is forgotten this long after its last sign of life; its store is not.
local PROJECT_TTL_SECONDS = 30 * 24 * 3600

-- The zset of since when the entries of a large set wait; nil for any other zset.
local function since_of(large)
  local kind = string.match(large, '^tiepoint:large:(.*)$')
  return kind and 'tiepoint:large-since:' .. kind
end

-- Notes since when an entry waits, unless that is known.
local function wait_in_large(large, entry, since_ms)
  local since = since_of(large)
  redis.call('ZADD', since, 'NX', since_ms, entry)
  redis.call('EXPIRE', since, PROJECT_TTL_SECONDS)
end

local function leave_large(large, entry)
  local removed, since = redis.call('ZREM', large, entry), since_of(large)
  if since then redis.call('ZREM', since, entry) end
  return removed
end

local function is_cancelled(project_id)
  return redis.call('HGET', PREFIX .. project_id, 'state') == 'cancelled'
end

-- Counts jobs that leave the queues for good, or that scripts push: the sum of all is conserved.
local TOTALS = 'tiepoint:totals'
local function count_total(name, more) return redis.call('HINCRBY', TOTALS, name, more) end

-- The place in a project that a message's headers name: project, stage, item; nil where they name none.
local function place_of(payload)
  local readable, message = pcall(cjson.decode, payload)
  local headers = readable and type(message) == 'table' and message.headers
  if type(headers) ~= 'table' then return nil end
  for _, name in ipairs({'project', 'stage', 'item'}) do
    if type(headers[name]) ~= 'string' then return nil end
  end
  return headers.project, headers.stage, headers.item
end

-- Counts an item out that leaves the queue with its project, which was cancelled.
local function drop_item(project_id, stage, item)
  count_total('dropped', 1)
  if redis.call('SREM', PREFIX .. project_id .. ':' .. stage .. ':todo', item) == 1 then
    redis.call('HINCRBY', PREFIX .. project_id, 'outstanding', -1)
  end
end

-- Puts a message that was claimed back in front of its list, unless its project was cancelled meanwhile.
local function put_back(list, payload)
  local project_id, stage, item = place_of(payload)
  if project_id and is_cancelled(project_id) then
    drop_item(project_id, stage, item)
  else
    redis.call('RPUSH', list, payload)
  end
end

-- The node of an incarnation's hash as a message remembers it; only names without surprises.
local function lost_on(inflight)
  local name = string.match(inflight, '^tiepoint:inflight:([%w._-]+)|')
  return name and '"' .. name .. '"'
end

-- Gives back all that one incarnation holds; the oldest claim ends up next in line. more_lost: it was lost.
local function restore_all(inflight, more_lost)
  local held = redis.call('HGETALL', inflight)
  local tags, payloads = {}, {}
  for i = 1, #held, 2 do
    tags[#tags + 1] = held[i]
    payloads[held[i]] = held[i + 1]
  end
  table.sort(tags, function(a, b) return a > b end)
  local new = {lost_on = more_lost > 0 and lost_on(inflight) or nil}
  for _, tag in ipairs(tags) do
    put_back(list_of(tag), bump(payloads[tag], 0, more_lost, new))
  end
  redis.call('DEL', inflight)
  return #tags
end

-- The messages of dead jobs that can be put back, by the serials of their reports.
local DEAD_MESSAGES = 'tiepoint:dead-messages'

-- Drops the message that is kept with a report, if any, and returns it.
local function forget_message(report)
  local serial = string.match(report, '^{"serial":(%d+),')
  local message = serial and redis.call('HGET', DEAD_MESSAGES, serial)
  if not message then return nil end
  redis.call('HDEL', DEAD_MESSAGES, serial)
  count_total('kept_bytes', -#message)
  return message
end

-- The lists that this call has pushed to, in no order. Redis does not tell a node of its own pushes.
local pushed_to = {}
local function names_of_pushed_lists()
  local names = {}
  for name in pairs(pushed_to) do names[#names + 1] = name end
  return names
end

-- Pushes one job of a project unless it is in its stage's todo set already.
local function push_job(job)
  local project = PREFIX .. job.project
  if redis.call('SADD', project .. ':' .. job.stage .. ':todo', job.item) == 0 then return end
  redis.call('HINCRBY', project, 'outstanding', 1)
  redis.call('HINCRBY', project, job.stage .. ':planned', 1)
  redis.call('HSETNX', project, job.stage .. ':started_ms', now_ms())
  redis.call('LPUSH', job.list, job.payload)
  count_total('pushed', 1)
  pushed_to[job.list] = true
  redis.call('EXPIRE', project .. ':' .. job.stage .. ':todo', PROJECT_TTL_SECONDS)
  redis.call('EXPIRE', project, PROJECT_TTL_SECONDS)
end

-- One low water is enough for so many nodes; more nodes empty a window faster than a plan can fill it.
local NODES_PER_LOW_WATER = 4
-- Jobs that unfinished ones of the stage `pairs` may bring in one go: each is one job until then, and its
-- partners' number after. Where a thousand images are paired with each other, they would all wait at once.
local MOST_PROMISED_JOBS = 8192

-- Pushes the waiting pipeline.expand message once few enough jobs are outstanding.
-- The field is removed in the same step, so a barrier is neither missed nor fires twice.
local function continue_project(project)
  local waiting = redis.call('HMGET', project, 'next_expand', 'continue_at', 'outstanding', 'pairs:each')
  if not waiting[1] then return end
  local nodes = math.max(NODES_PER_LOW_WATER, redis.call('ZCARD', 'tiepoint:leases'))
  local low_water = tonumber(waiting[2]) * nodes / NODES_PER_LOW_WATER
  if tonumber(waiting[3] or 0) > low_water then return end
  local unfinished = redis.call('SCARD', project .. ':pairs:todo')
  if unfinished * tonumber(waiting[4] or 1) > MOST_PROMISED_JOBS then return end
  redis.call('HDEL', project, 'next_expand', 'continue_at')
  push_job(cjson.decode(waiting[1]))
end
