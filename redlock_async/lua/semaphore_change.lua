-- semaphore_change.lua: set the number of permits, unless a slot beyond it is held or another number was set meanwhile.
-- KEYS[1]  the number of permits; the key of a slot is this key, a colon and the slot; none beyond the number is held
-- ARGV[1]  the value to store: the new number, a colon, and a unique token
-- ARGV[2]  the value that an operator has set before, as the caller knows it, or empty for none
-- Returns {1, the value it has replaced, or nil} if it is stored; {0} if another value was set; {-1, slot, holder
-- token, its ttl in ms} of the first held slot beyond the new number.
local bound = redis.call('GET', KEYS[1])
local set = bound and string.find(bound, ':', 1, true) and bound or ''
if set ~= ARGV[2] then return {0} end
-- The maximum is 1000.
for slot = tonumber(string.match(ARGV[1], '^%d+')), math.min(tonumber(bound and string.match(bound, '^%d+') or 0), 1000) - 1 do
  local key = KEYS[1] .. ':' .. slot
  if redis.call('EXISTS', key) == 1 then
    return {-1, slot, redis.call('GETRANGE', key, 0, 1023), redis.call('PTTL', key)}
  end
end
redis.call('SET', KEYS[1], ARGV[1])
return {1, bound and string.sub(bound, 1, 1024)}
