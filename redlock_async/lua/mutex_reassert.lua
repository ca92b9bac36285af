-- mutex_secure.lua: on locks that are ours, raise the fence registers to our token; optionally set lost keys again.
-- KEYS     the lock keys, then one fence register for each (none of them: not fenced)
-- ARGV[1]  how many of KEYS are locks   ARGV[2] holder token   ARGV[3] ttl in ms, or 0: set nothing again
-- ARGV[4]  our fencing token (only when fenced)
-- Returns 1 if all the locks are ours afterwards, else 0, with nothing changed.
local locks = tonumber(ARGV[1])
local token = ARGV[2]
local ttl = tonumber(ARGV[3])
for i = 1, locks do
  local holder = redis.call('GET', KEYS[i])
  if holder ~= token and (holder or ttl == 0) then return 0 end
end
if ttl > 0 then
  for i = 1, locks do redis.call('SET', KEYS[i], token, 'NX', 'PX', ttl) end
end
for i = locks + 1, #KEYS do
  local stored = redis.call('GETSET', KEYS[i], ARGV[4])
  if stored and tonumber(stored) > tonumber(ARGV[4]) then redis.call('SET', KEYS[i], stored) end
end
-- The last command that touches a lock reads it: our own write would have disarmed client tracking.
for i = 1, locks do redis.call('EXISTS', KEYS[i]) end
return 1
