-- Takes the messages of a cancelled project out of one stretch of a list; the others keep their order.
-- KEYS: list. ARGV: project, index of the stretch's first message, its length.
-- From the left, where messages are pushed: what is taken from the right meanwhile moves nothing.
-- Does nothing for a project that is not cancelled (any more).
-- Returns {messages looked at, messages removed}.
local project_id, first = ARGV[1], tonumber(ARGV[2])
if not is_cancelled(project_id) then return {0, 0} end
-- JSON holds no raw zero byte, so this is no message.
local GONE = '\0gone'
local removed = 0
local stretch = redis.call('LRANGE', KEYS[1], first, first + tonumber(ARGV[3]) - 1)
for offset, payload in ipairs(stretch) do
  local project, stage, item = place_of(payload)
  if project == project_id then
    redis.call('LSET', KEYS[1], first + offset - 1, GONE)
    drop_item(project, stage, item)
    removed = removed + 1
  end
end
if removed > 0 then
  -- LREM walks to what it removes: from the nearer end.
  local is_left_half = 2 * first < redis.call('LLEN', KEYS[1])
  redis.call('LREM', KEYS[1], is_left_half and removed or -removed, GONE)
end
return {#stretch, removed}
