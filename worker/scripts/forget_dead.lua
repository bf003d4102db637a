-- Takes the reports of a project, or of one item of it, out of one stretch of the list of dead jobs.
-- KEYS: dead. ARGV: project, stage and item (both '' = the whole project), index of the stretch's first, length.
-- From the left, where reports are added: what is added meanwhile hides none. No messages are kept for items.
-- Returns {reports looked at, reports removed}.
-- JSON holds no raw zero byte, so this is no report.
local GONE = '\0gone'
local first, removed = tonumber(ARGV[4]), 0
local stretch = redis.call('LRANGE', KEYS[1], first, first + tonumber(ARGV[5]) - 1)
for offset, report in ipairs(stretch) do
  local readable, told = pcall(cjson.decode, report)
  local is_of_project = readable and type(told) == 'table' and told.project == ARGV[1]
  if is_of_project and (ARGV[2] == '' or (told.stage == ARGV[2] and told.item == ARGV[3])) then
    redis.call('LSET', KEYS[1], first + offset - 1, GONE)
    removed = removed + 1
  end
end
if removed > 0 then
  redis.call('LREM', KEYS[1], removed, GONE)
  count_total('forgotten', removed)
end
return {#stretch, removed}
