-- Writes a node's entry in the registry.
-- KEYS: the entry. ARGV: ms that it lasts, then field, value, ...
redis.call('HSET', KEYS[1], unpack(ARGV, 2))
redis.call('PEXPIRE', KEYS[1], ARGV[1])
