-- Keeps the drain that the caller holds, or tells what may be drained for and takes it.
-- The drain is one node's for one large entry: while the node's lease lives, the entry waits, and it is kept.
-- KEYS: leases, drain, large zsets.
-- ARGV: incarnation, ms that an entry must have waited, most bytes (the score), ms that it is kept,
-- identity of the entry to drain for ('' = only tell).
-- Returns {'held', entry}: the caller's; {'other'}: another node's; {'free', entry, ...}: what may be drained
-- for, the longest waiting first. An entry is told as by peek.lua, and the large zset it is in.
local MOST_LOOKED_AT = 8
local now, most_bytes = now_ms(), tonumber(ARGV[3])

local function told(large, entry, charged_bytes)
  local list, payload = string.match(entry, '^([^%z]*)%z(.*)$')
  local estimate, mark, class, project, contract = head_of(payload)
  local count = redis.call('ZCARD', large)
  return {count, estimate, mark, class, charged_bytes, redis.sha1hex(payload), list, project, contract, large}
end

local held = redis.call('HMGET', KEYS[2], 'holder', 'large', 'entry')
if held[1] then
  local charged_bytes = redis.call('ZSCORE', held[2], held[3])
  if charged_bytes and held[1] == ARGV[1] then
    redis.call('PEXPIRE', KEYS[2], ARGV[4])
    return {'held', told(held[2], held[3], charged_bytes)}
  end
  if charged_bytes and lease_is_live(KEYS[1], held[1]) then return {'other'} end
  redis.call('DEL', KEYS[2])
end

local offers = {}
local function offer(large, entry, since_ms, charged_bytes)
  if now - tonumber(since_ms) < tonumber(ARGV[2]) then return end
  offers[#offers + 1] = {large = large, entry = entry, since_ms = tonumber(since_ms), bytes = charged_bytes}
end

local function largest(large, count)
  return redis.call('ZREVRANGEBYSCORE', large, ARGV[3], '-inf', 'WITHSCORES', 'LIMIT', 0, count)
end

local function look_into(large)
  local since = since_of(large)
  -- An older version does not note since when an entry waits, nor that it has gone.
  if redis.call('ZCARD', since) < redis.call('ZCARD', large) then
    local unnoted = largest(large, MOST_LOOKED_AT)
    for i = 1, #unnoted, 2 do wait_in_large(large, unnoted[i], now) end
  end
  local offered = #offers
  local waiting = redis.call('ZRANGE', since, 0, MOST_LOOKED_AT - 1, 'WITHSCORES')
  for i = 1, #waiting, 2 do
    local charged_bytes = redis.call('ZSCORE', large, waiting[i])
    if not charged_bytes then
      redis.call('ZREM', since, waiting[i])
    elseif tonumber(charged_bytes) <= most_bytes then
      offer(large, waiting[i], waiting[i + 1], charged_bytes)
    end
  end
  -- What no live node can run would hide the rest for ever.
  local entry = largest(large, 1)
  if #offers == offered and entry[1] then
    offer(large, entry[1], redis.call('ZSCORE', since, entry[1]) or now, entry[2])
  end
end
for i = 3, #KEYS do look_into(KEYS[i]) end
table.sort(offers, function(a, b)
  if a.since_ms ~= b.since_ms then return a.since_ms < b.since_ms end
  return a.entry < b.entry
end)

local reply = {'free'}
for i, offered in ipairs(offers) do
  local entry = told(offered.large, offered.entry, offered.bytes)
  if ARGV[5] == entry[6] and lease_is_live(KEYS[1], ARGV[1]) then
    redis.call('HSET', KEYS[2], 'holder', ARGV[1], 'large', offered.large, 'entry', offered.entry,
      'since_ms', string.format('%.0f', offered.since_ms), 'charged_bytes', offered.bytes)
    redis.call('PEXPIRE', KEYS[2], ARGV[4])
    return {'held', entry}
  end
  reply[i + 1] = entry
end
return reply
