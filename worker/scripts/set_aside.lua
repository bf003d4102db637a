-- Moves the head of a list to the kind's large zset, so that it no longer blocks the list.
-- KEYS: list, large zset. ARGV: expected estimate, expected mark, bytes charged (the score),
-- only if it blocks (1: something with another estimate must wait close behind; 0: in any case),
-- ms that it has waited already (0 where absent).
-- Returns 1 when moved, 0 when the head was another one or blocks nothing.
local LOOK_BEHIND = 16
local payload = redis.call('LINDEX', KEYS[1], -1)
if not payload then return 0 end
local estimate, mark = head_of(payload)
if estimate ~= ARGV[1] or mark ~= ARGV[2] then return 0 end
local blocks = ARGV[4] == '0'
for _, behind in ipairs(blocks and {} or redis.call('LRANGE', KEYS[1], -1 - LOOK_BEHIND, -2)) do
  blocks = blocks or head_of(behind) ~= estimate
end
if not blocks then return 0 end
redis.call('RPOP', KEYS[1])
local entry = KEYS[1] .. '\0' .. payload
redis.call('ZADD', KEYS[2], ARGV[3], entry)
wait_in_large(KEYS[2], entry, now_ms() - tonumber(ARGV[5] or 0))
return 1
