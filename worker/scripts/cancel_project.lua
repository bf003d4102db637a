-- Marks a running project as cancelled: from now on nothing of it is pushed, continued or given back.
-- KEYS: project hash. What it has in the queues is taken out by cancel_list.lua and cancel_set.lua.
-- Returns the state it was in ('' = the queue does not know it); only a running project is changed.
local state = redis.call('HGET', KEYS[1], 'state') or ''
if state == 'running' then
  redis.call('HSET', KEYS[1], 'state', 'cancelled')
  redis.call('HDEL', KEYS[1], 'next_expand', 'continue_at')
end
return state
