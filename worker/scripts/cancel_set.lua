-- Takes the messages of a cancelled project out of a part of a zset (the delayed ones, a large set).
-- KEYS: zset. ARGV: project, cursor of ZSCAN, entries to look at (about).
-- Does nothing for a project that is not cancelled (any more).
-- Returns {next cursor ('0' = the whole set was seen), messages removed}.
if not is_cancelled(ARGV[1]) then return {'0', 0} end
local removed = 0
local part = redis.call('ZSCAN', KEYS[1], ARGV[2], 'COUNT', ARGV[3])
for i = 1, #part[2], 2 do
  local payload = string.match(part[2][i], '^[^%z]*%z(.*)$')
  local project, stage, item = place_of(payload or '')
  if project == ARGV[1] and leave_large(KEYS[1], part[2][i]) == 1 then
    drop_item(project, stage, item)
    removed = removed + 1
  end
end
return {part[1], removed}
