-- semaphore_secure.lua: on slots that are ours, raise the fence registers to our token; optionally set lost ones again.
-- KEYS[1]  their semaphore's number of permits   then the slots, and one fence register for each (none: not fenced)
-- ARGV[1]  how many of KEYS are slots   ARGV[2] holder token   ARGV[3] ttl in ms, or 0: set nothing again
-- ARGV[4]  the number of permits   ARGV[5] our fencing token (only when fenced)
-- Returns 1 if all the slots are ours afterwards, else 0, with nothing changed.
local slots, ttl = tonumber(ARGV[1]), tonumber(ARGV[3])
for i = 2, slots + 1 do
  local holder = redis.call('GET', KEYS[i])
  if holder ~= ARGV[2] and (holder or ttl == 0) then return 0 end
end
if ttl > 0 then
  -- With the slots comes the number of permits they are under: without it another number could be used beside it.
  local bound = redis.call('GET', KEYS[1])
  -- What an operator has set has a colon, and stays.
  local set = bound and string.match(bound, '^(%d+):')
  if bound and (set or bound) ~= ARGV[4] then return 0 end
  for i = 2, slots + 1 do redis.call('SET', KEYS[i], ARGV[2], 'NX', 'PX', ttl) end
  if not set and redis.call('PTTL', KEYS[1]) < ttl then redis.call('SET', KEYS[1], ARGV[4], 'PX', 2 * ttl) end
end
for i = slots + 2, #KEYS do
  local stored = redis.call('GETSET', KEYS[i], ARGV[5])
  if stored and tonumber(stored) > tonumber(ARGV[5]) then redis.call('SET', KEYS[i], stored) end
end
-- The last command that touches a slot reads it: our own write would have disarmed client tracking.
for i = 2, slots + 1 do redis.call('EXISTS', KEYS[i]) end
return 1
