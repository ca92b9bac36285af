-- semaphore_forget.lua: turn a number of permits that an operator has set into one that expires when it is not used.
-- KEYS[1]  the number of permits; the key of a slot is this key, a colon and the slot; none beyond the number is held
-- ARGV[1]  ms to keep it for   ARGV[2..] values that operators have set, as the caller knows them: no other is changed
-- Returns 1 if one of them was stored, else 0.
local bound = redis.call('GET', KEYS[1])
for i = 2, #ARGV do
  if bound == ARGV[i] then
    local permits = string.match(bound, '^%d+')
    -- It is kept at least while slots are held under it, otherwise another number could be in use at the same time.
    -- Slots that are held for min_hold without renewal may outlive any ttl.
    local keep = tonumber(ARGV[1])
    -- The maximum is 1000.
    for slot = 0, math.min(tonumber(permits), 1000) - 1 do
      keep = math.max(keep, redis.call('PTTL', KEYS[1] .. ':' .. slot))
    end
    redis.call('SET', KEYS[1], permits, 'PX', keep)
    return 1
  end
end
return 0
