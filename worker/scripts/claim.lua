-- Takes up to n messages of one list under the caller's lease, in one step with their record.
-- KEYS: leases, inflight, list.
-- ARGV: incarnation, serial, expected estimate, expected mark, n, most payload bytes, powers of two (0 | 1).
-- Stops at the first message whose estimate or mark differs; a suspect or an
-- unreadable message is taken alone.
-- Returns {held, tag, payload, tag, payload, ...}: held = 0 when the lease is gone.
if not lease_is_live(KEYS[1], ARGV[1]) then return {0} end
-- Lua's stack bounds the one HSET below; failing there would lose what was popped.
local MOST_MESSAGES = 1000
local waiting = redis.call('LRANGE', KEYS[3], -math.min(tonumber(ARGV[5]), MOST_MESSAGES), -1)
local wanted, bytes = 0, 0
local is_alone = ARGV[4] ~= 'ok' and ARGV[4] ~= 'moved'
for i = #waiting, 1, -1 do
  local estimate, mark = head_of(waiting[i])
  bytes = bytes + #waiting[i]
  if estimate ~= ARGV[3] or mark ~= ARGV[4] then break end
  if wanted > 0 and (is_alone or bytes > tonumber(ARGV[6])) then break end
  wanted = wanted + 1
end
if wanted == 0 then return {1} end
if ARGV[7] == '1' then
  local floored = 1
  while floored * 2 <= wanted do floored = floored * 2 end
  wanted = floored
end
local claimed, record = {1}, {}
for index, payload in ipairs(redis.call('RPOP', KEYS[3], wanted)) do
  local tag = string.format('%s:%04d:%s', ARGV[2], index, KEYS[3])
  record[#record + 1] = tag
  record[#record + 1] = payload
  claimed[#claimed + 1] = tag
  claimed[#claimed + 1] = payload
end
redis.call('HSET', KEYS[2], unpack(record))
return claimed
