-- semaphore_force.lua: take all slots of a semaphore from their holders, as mutex_force.lua does with a lock.
-- KEYS[1]  the number of permits; the key of a slot is this key, a colon and the slot; none beyond the number is held
-- ARGV[1]  the value that the slots have until they are freed, or for ARGV[2] ms
-- Returns the slots that were held. A key of another type is an error (WRONGTYPE) and stays.
local bound, freed = redis.call('GET', KEYS[1]), {}
-- The maximum is 1000.
for slot = 0, math.min(tonumber(bound and string.match(bound, '^%d+') or 0), 1000) - 1 do
  local key = KEYS[1] .. ':' .. slot
  if redis.call('GET', key) then
    redis.call('DEL', key)
    redis.call('SET', key, ARGV[1], 'PX', ARGV[2])
    freed[#freed + 1] = slot
  end
end
return freed
