-- Ends the drain that the caller holds; its entry goes on waiting.
-- KEYS: drain. ARGV: incarnation. Returns 1 when ended, 0 when it was not the caller's.
if redis.call('HGET', KEYS[1], 'holder') ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])
