-- Counts where all jobs are, in one step; reads sizes only and changes nothing.
-- KEYS: leases, delayed, dead, totals, then lists and large sets. ARGV: inflight prefix.
-- Returns {claimed, delayed, dead, {field, value, ...} of the totals, {size of each list or set}}.
local claimed, sizes = 0, {}
for _, incarnation in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do
  claimed = claimed + redis.call('HLEN', ARGV[1] .. incarnation)
end
for index = 5, #KEYS do
  local is_large = redis.call('TYPE', KEYS[index]).ok == 'zset'
  sizes[#sizes + 1] = redis.call(is_large and 'ZCARD' or 'LLEN', KEYS[index])
end
return {claimed, redis.call('ZCARD', KEYS[2]), redis.call('LLEN', KEYS[3]), redis.call('HGETALL', KEYS[4]), sizes}
