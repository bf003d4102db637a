-- Renews a lease, gives back what dead nodes held, and returns parked messages that are due.
-- KEYS: leases, tick, delayed, the node's entry in the registry. ARGV: incarnation, lease ms, create, inflight prefix.
-- create: 0 = must be there; 1 = may be absent, but not beside a live lease of the same name; 2 = may be absent.
-- Returns {owned, messages given back, messages due, ms to the next due one or -1, live nodes, now in ms}.
-- owned: 0 = the lease had ended, -1 = refused for its name, and nothing was done.
local now, lease_ms = now_ms(), tonumber(ARGV[2])

if ARGV[3] == '1' then
  local name = string.match(ARGV[1], '^[^|]*|')
  for _, incarnation in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], now, '+inf')) do
    if incarnation ~= ARGV[1] and string.sub(incarnation, 1, #name) == name then return {-1, 0, 0, -1, 0, now} end
  end
end

local last = tonumber(redis.call('GET', KEYS[2]) or now)
if now - last > lease_ms / 2 then
  -- Nobody renewed for half a lease: Redis itself was away, nobody is to blame, all get one lease more.
  for _, incarnation in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do
    redis.call('ZADD', KEYS[1], 'GT', now + lease_ms, incarnation)
  end
elseif now < last then
  -- The clock was set back, or another server took over: the dead must not keep what they hold for that long.
  local leases = redis.call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES')
  for i = 1, #leases, 2 do
    redis.call('ZADD', KEYS[1], tonumber(leases[i + 1]) - (last - now), leases[i])
  end
end
redis.call('SET', KEYS[2], now)

local owned = redis.call('ZSCORE', KEYS[1], ARGV[1]) and 1 or 0
if owned == 1 or ARGV[3] ~= '0' then
  redis.call('ZADD', KEYS[1], now + lease_ms, ARGV[1])
  redis.call('PEXPIRE', KEYS[4], lease_ms)
end

local given_back = 0
for _, incarnation in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', 0, 4)) do
  given_back = given_back + restore_all(ARGV[4] .. incarnation, 1)
  redis.call('ZREM', KEYS[1], incarnation)
end

local due = redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', now, 'LIMIT', 0, 200)
for i = #due, 1, -1 do
  local list, payload = string.match(due[i], '^([^%z]*)%z(.*)$')
  put_back(list, payload)
  redis.call('ZREM', KEYS[3], due[i])
end
local next_due, wait_ms = redis.call('ZRANGE', KEYS[3], 0, 0, 'WITHSCORES'), -1
if next_due[2] then wait_ms = math.max(0, tonumber(next_due[2]) - now) end
return {owned, given_back, #due, wait_ms, redis.call('ZCOUNT', KEYS[1], now, '+inf'), now}
