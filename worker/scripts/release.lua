-- Ends a lease and gives everything it holds back at once, nothing counted.
-- KEYS: leases, inflight. ARGV: incarnation. Returns the number of messages given back.
local given_back = restore_all(KEYS[2], 0, 0)
redis.call('ZREM', KEYS[1], ARGV[1])
return given_back
