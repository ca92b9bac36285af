-- semaphore_secure.lua: on a slot that is ours, raise its fence register to our token; optionally set a lost one again.
-- KEYS[1]  slot   KEYS[2] its semaphore's number of permits   KEYS[3] fence register (absent: not fenced)
-- ARGV[1]  holder token   ARGV[2] ttl in ms, or 0: set nothing again   ARGV[3] the number of permits
-- ARGV[4]  our fencing token (only when fenced)
-- Returns 1 if the slot is ours afterwards, else 0, with nothing changed.
local ttl = tonumber(ARGV[2])
local holder = redis.call('GET', KEYS[1])
if holder ~= ARGV[1] and (holder or ttl == 0) then return 0 end
if ttl > 0 then
  -- With the slot comes the number of permits it is under: without it another number could be used beside it.
  local bound = redis.call('GET', KEYS[2])
  if bound and bound ~= ARGV[3] then return 0 end
  redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ttl)
  if redis.call('PTTL', KEYS[2]) < ttl then redis.call('SET', KEYS[2], ARGV[3], 'PX', 2 * ttl) end
end
if KEYS[3] then
  local stored = redis.call('GETSET', KEYS[3], ARGV[4])
  if stored and tonumber(stored) > tonumber(ARGV[4]) then redis.call('SET', KEYS[3], stored) end
end
-- The last command that touches the slot reads it: our own write would have disarmed client tracking.
redis.call('EXISTS', KEYS[1])
return 1
