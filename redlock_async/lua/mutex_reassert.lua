-- mutex_reassert.lua: raise the fence registers of our locks to our token; optionally set missing keys again.
-- KEYS     the lock keys, then their fence registers (no registers: not fenced)
-- ARGV[1]  how many of KEYS are locks   ARGV[2] holder token   ARGV[3] ttl in ms, or 0: set no key again
-- ARGV[4]  our fencing token (only when fenced)
-- Returns 1 if all the locks are ours afterwards, else 0, with nothing changed.
-- include: limits.lua
local locks = tonumber(ARGV[1])
local token = ARGV[2]
local ttl = tonumber(ARGV[3])
local rejected = #KEYS > locks and out_of_range(ARGV[4], clock())
if rejected then return rejected end
for i = 1, locks do
  local holder = redis.call('GET', KEYS[i])
  if holder ~= token and (holder or ttl == 0) then return 0 end
end
if ttl > 0 then
  for i = 1, locks do redis.call('SET', KEYS[i], token, 'NX', 'PX', ttl) end
end
for i = locks + 1, #KEYS do raise_to(KEYS[i], ARGV[4]) end
-- Our own write has disarmed client tracking; reading the key last arms it again.
for i = 1, locks do redis.call('EXISTS', KEYS[i]) end
return 1
