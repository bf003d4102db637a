-- Writes down what a node has learned, unless its lease has ended or a later state is there.
-- KEYS: leases, the hash, the node's index. ARGV: incarnation, sequence, seconds they last, then field, value, ...
-- Returns 1 = written, 0 = a later one is there, -1 = the lease has ended.
if not lease_is_live(KEYS[1], ARGV[1]) then return -1 end
local kept = tonumber(redis.call('HGET', KEYS[2], 'sequence') or 0) or 0
if kept >= tonumber(ARGV[2]) then return 0 end
redis.call('DEL', KEYS[2])
redis.call('HSET', KEYS[2], unpack(ARGV, 4))
redis.call('SADD', KEYS[3], KEYS[2])
redis.call('EXPIRE', KEYS[2], ARGV[3])
redis.call('EXPIRE', KEYS[3], ARGV[3])
return 1
