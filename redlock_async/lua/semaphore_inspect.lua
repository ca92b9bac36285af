-- semaphore_inspect.lua: which slots of a semaphore are held on this node, and by whom.
-- KEYS[1]  the number of permits; the slots are called that, a colon and a number, and none is held beyond the number
-- Returns {what the first key holds, or nil, then for each slot that is held {slot, holder token, its ttl in ms}}.
local bound = redis.call('GET', KEYS[1])
local answer = {bound}
-- 1000 is the most there can be.
for slot = 0, math.min(tonumber(bound and string.match(bound, '^%d+') or 0), 1000) - 1 do
  local key = KEYS[1] .. ':' .. slot
  local holder = redis.call('GET', key)
  if holder then answer[#answer + 1] = {slot, holder, redis.call('PTTL', key)} end
end
return answer
