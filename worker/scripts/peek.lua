-- Looks at the heads of lists and at the large entries, changing nothing.
-- KEYS: list or large zset keys. ARGV: for each key 'list', or the most bytes to look for.
-- Returns for each key {count, estimate, mark, class, charged bytes, identity, list, project, contract}; {count} where
-- nothing (that fits) waits. The identity tells one message from the next like it.
local heads = {}
for i, key in ipairs(KEYS) do
  local payload
  local count, charged_bytes, list = 0, 0, key
  if ARGV[i] == 'list' then
    payload = redis.call('LINDEX', key, -1)
    if payload then count = redis.call('LLEN', key) end
  else
    count = redis.call('ZCARD', key)
    local entry = redis.call('ZREVRANGEBYSCORE', key, ARGV[i], '-inf', 'WITHSCORES', 'LIMIT', 0, 1)
    if entry[1] then list, payload = string.match(entry[1], '^([^%z]*)%z(.*)$') end
    charged_bytes = entry[2]
  end
  if payload then
    local estimate, mark, class, project, contract = head_of(payload)
    heads[i] = {count, estimate, mark, class, charged_bytes, redis.sha1hex(payload), list, project, contract}
  else
    heads[i] = {count}
  end
end
return heads
