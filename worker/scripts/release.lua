-- Ends a lease and gives everything it holds back at once.
-- KEYS: leases, inflight. ARGV: incarnation, lost nodes to count: 0 = it leaves, 1 = it is known to be dead.
-- Returns the number of messages given back.
local given_back = restore_all(KEYS[2], tonumber(ARGV[2]))
redis.call('ZREM', KEYS[1], ARGV[1])
return given_back
