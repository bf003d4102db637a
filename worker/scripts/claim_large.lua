-- Takes the largest entry of a large zset that fits, under the caller's lease.
-- KEYS: leases, inflight, large zset.
-- ARGV: incarnation, serial, expected estimate, expected mark, most bytes (the score).
-- Returns as claim.lua does.
if not lease_is_live(KEYS[1], ARGV[1]) then return {0} end
local entry = redis.call('ZREVRANGEBYSCORE', KEYS[3], ARGV[5], '-inf', 'LIMIT', 0, 1)[1]
if not entry then return {1} end
local list, payload = string.match(entry, '^([^%z]*)%z(.*)$')
local estimate, mark = head_of(payload)
if estimate ~= ARGV[3] or mark ~= ARGV[4] then return {1} end
redis.call('ZREM', KEYS[3], entry)
local tag = string.format('%s:%04d:%s', ARGV[2], 1, list)
redis.call('HSET', KEYS[2], tag, payload)
return {1, tag, payload}
