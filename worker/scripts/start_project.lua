-- Registers a project and pushes its first pipeline.expand message; one that is running gets it at its end,
-- for what is asked for now (failed items again, a later phase) may be behind its last look.
-- KEYS: project hash. ARGV: first job (JSON), names of all stages (JSON), then field, value, ...
-- What a failed run has left in the queues still counts as outstanding: it will be settled.
-- Returns 1 when started, 0 when it was running.
local project, first = KEYS[1], cjson.decode(ARGV[1])
if redis.call('HGET', project, 'state') == 'running' then
  redis.call('HSET', project, 'again', ARGV[1], unpack(ARGV, 3))
  return 0
end
-- Refused where the server's memory is full, before anything is changed; a deletion as the first write is not.
redis.call('HSET', project, 'state', 'running')
redis.call('DEL', project, project .. ':' .. first.stage .. ':todo')
local outstanding = 0
for _, stage in ipairs(cjson.decode(ARGV[2])) do
  outstanding = outstanding + redis.call('SCARD', project .. ':' .. stage .. ':todo')
end
redis.call('HSET', project, 'state', 'running', 'outstanding', outstanding, unpack(ARGV, 3))
push_job(first)
return 1
