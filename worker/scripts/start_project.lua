-- Registers a project and pushes its first pipeline.expand message, unless it is running already.
-- KEYS: project hash. ARGV: first job (JSON), then field, value, field, value ...
-- Returns 1 when started, 0 when it was running.
if redis.call('HGET', KEYS[1], 'state') == 'running' then return 0 end
local stale = redis.call('HKEYS', KEYS[1])
for _, field in ipairs(stale) do redis.call('HDEL', KEYS[1], field) end
redis.call('HSET', KEYS[1], 'state', 'running', unpack(ARGV, 2))
push_job(cjson.decode(ARGV[1]))
return 1
