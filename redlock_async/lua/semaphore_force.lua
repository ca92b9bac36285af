-- semaphore_force.lua: free all the slots of a semaphore, whoever holds them.
-- KEYS[1]  the number of permits; the slots are called that, a colon and a number, and none is held beyond the number
-- Returns the slots that were held. A key of another type is an error (WRONGTYPE) and stays.
local bound, freed = redis.call('GET', KEYS[1]), {}
-- 1000 is the most there can be.
for slot = 0, math.min(tonumber(bound and string.match(bound, '^%d+') or 0), 1000) - 1 do
  local key = KEYS[1] .. ':' .. slot
  if redis.call('GET', key) then
    redis.call('DEL', key)
    freed[#freed + 1] = slot
  end
end
return freed
