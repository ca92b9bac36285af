-- semaphore_reassert.lua: raise the fence register of our slots to our token; optionally set missing slots again.
-- KEYS[1]  their semaphore's number of permits   then the slots, and their fence register (absent: not fenced)
-- ARGV[1]  how many of KEYS are slots   ARGV[2] holder token   ARGV[3] ttl in ms, or 0: set no slot again
-- ARGV[4]  the number of permits   ARGV[5] our fencing token (only when fenced)
-- Returns 1 if all the slots are ours afterwards, else 0, with nothing changed.
-- include: limits.lua
local slots, ttl = tonumber(ARGV[1]), tonumber(ARGV[3])
local rejected = #KEYS > slots + 1 and out_of_range(ARGV[5], clock())
if rejected then return rejected end
for i = 2, slots + 1 do
  local holder = redis.call('GET', KEYS[i])
  if holder ~= ARGV[2] and (holder or ttl == 0) then return 0 end
end
if ttl > 0 then
  -- Slots are set together with their number of permits: without it another number could be in use at the same time.
  local bound = redis.call('GET', KEYS[1])
  -- A number that an operator has set contains a colon, and stays.
  local set = bound and string.match(bound, '^(%d+):')
  if bound and (set or bound) ~= ARGV[4] then return 0 end
  for i = 2, slots + 1 do redis.call('SET', KEYS[i], ARGV[2], 'NX', 'PX', ttl) end
  if not set and redis.call('PTTL', KEYS[1]) < ttl then redis.call('SET', KEYS[1], ARGV[4], 'PX', 2 * ttl) end
end
for i = slots + 2, #KEYS do raise_to(KEYS[i], ARGV[5]) end
-- Our own write has disarmed client tracking; reading the slot last arms it again.
for i = 2, slots + 1 do redis.call('EXISTS', KEYS[i]) end
return 1
