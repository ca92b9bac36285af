-- semaphore_change.lua: set the number of permits, unless a slot beyond it is held or somebody else has set another.
-- KEYS[1]  the number of permits; the slots are called that, a colon and a number, and none is held beyond the number
-- ARGV[1]  what to store: the new number, a colon, and something that nobody stored before
-- ARGV[2]  what an operator has stored there so far, as far as the caller knows, or empty: nothing
-- Returns {1, what was stored (nil: nothing)} if it is stored; {0} if something else was set; {-1, slot, holder token, its
-- ttl in ms} of the first slot beyond the new number that is held.
local bound = redis.call('GET', KEYS[1])
local set = bound and string.find(bound, ':', 1, true) and bound or ''
if set ~= ARGV[2] then return {0} end
-- 1000 is the most there can be.
for slot = tonumber(string.match(ARGV[1], '^%d+')), math.min(tonumber(bound and string.match(bound, '^%d+') or 0), 1000) - 1 do
  local key = KEYS[1] .. ':' .. slot
  local holder = redis.call('GET', key)
  if holder then return {-1, slot, holder, redis.call('PTTL', key)} end
end
redis.call('SET', KEYS[1], ARGV[1])
return {1, bound}
