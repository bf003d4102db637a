-- Takes the largest entry of a large zset that fits, or the one drained for, under the caller's lease.
-- KEYS: leases, inflight, large zset; and the drain, to take the entry that the caller drains for.
-- ARGV: incarnation, serial, expected estimate, expected mark, most bytes (the score).
-- Returns as claim.lua does.
if not lease_is_live(KEYS[1], ARGV[1]) then return {0} end
local entry
if KEYS[4] then
  local held = redis.call('HMGET', KEYS[4], 'holder', 'large', 'entry')
  if held[1] == ARGV[1] and held[2] == KEYS[3] and redis.call('ZSCORE', KEYS[3], held[3]) then entry = held[3] end
else
  entry = redis.call('ZREVRANGEBYSCORE', KEYS[3], ARGV[5], '-inf', 'LIMIT', 0, 1)[1]
end
if not entry then return {1} end
local list, payload = string.match(entry, '^([^%z]*)%z(.*)$')
local estimate, mark = head_of(payload)
if estimate ~= ARGV[3] or mark ~= ARGV[4] then return {1} end
leave_large(KEYS[3], entry)
if KEYS[4] then redis.call('DEL', KEYS[4]) end
local tag = string.format('%s:%04d:%s', ARGV[2], 1, list)
redis.call('HSET', KEYS[2], tag, payload)
return {1, tag, payload}
