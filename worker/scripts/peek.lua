-- Looks at the heads of lists and at the large entries, changing nothing.
-- KEYS: list or large zset keys. ARGV: for each key 'list', or the most bytes to look for.
-- Returns for each key {count, estimate, mark, class, charged bytes}; {0} where nothing (that fits) waits.
local heads = {}
for i, key in ipairs(KEYS) do
  local payload, count
  local charged_bytes = 0
  if ARGV[i] == 'list' then
    payload = redis.call('LINDEX', key, -1)
    count = payload and redis.call('LLEN', key)
  else
    local entry = redis.call('ZREVRANGEBYSCORE', key, ARGV[i], '-inf', 'WITHSCORES', 'LIMIT', 0, 1)
    payload = entry[1] and string.match(entry[1], '^[^%z]*%z(.*)$')
    charged_bytes = entry[2]
    count = payload and redis.call('ZCARD', key)
  end
  if payload then
    local estimate, mark, class = head_of(payload)
    heads[i] = {count, estimate, mark, class, charged_bytes}
  else
    heads[i] = {0}
  end
end
return heads
