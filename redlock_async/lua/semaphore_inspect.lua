-- semaphore_inspect.lua: read the number of permits and the held slots of a semaphore on this node.
-- KEYS[1]  the number of permits; the key of a slot is this key, a colon and the slot; none beyond the number is held
-- Returns {the value of the first key, or nil, then for each held slot {slot, holder token, its ttl in ms}}. Values are
-- cut at 1,024 bytes.
local bound = redis.call('GET', KEYS[1])
local answer = {bound and string.sub(bound, 1, 1024)}
-- The maximum is 1000.
for slot = 0, math.min(tonumber(bound and string.match(bound, '^%d+') or 0), 1000) - 1 do
  local key = KEYS[1] .. ':' .. slot
  if redis.call('EXISTS', key) == 1 then
    answer[#answer + 1] = {slot, redis.call('GETRANGE', key, 0, 1023), redis.call('PTTL', key)}
  end
end
return answer
