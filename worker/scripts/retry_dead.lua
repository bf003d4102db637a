-- Puts a dead job back into its list as it was sent, its history forgotten, and drops its report.
-- KEYS: dead. ARGV: the report as it is in the list.
-- Returns 1; 0 where the report is gone; -1 where its message was not kept: then nothing is changed.
local serial = string.match(ARGV[1], '^{"serial":(%d+),')
if not serial or redis.call('HEXISTS', DEAD_MESSAGES, serial) == 0 then
  return redis.call('LPOS', KEYS[1], ARGV[1]) and -1 or 0
end
if redis.call('LREM', KEYS[1], 1, ARGV[1]) == 0 then return 0 end
local list, payload = string.match(forget_message(ARGV[1]), '^([^%z]*)%z(.*)$')
redis.call('LPUSH', list, payload)
count_total('retried', 1)
return 1
