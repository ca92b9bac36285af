-- mutex_acquire.lua: acquire all of the locks or none, and raise their fence registers.
-- KEYS     the lock keys, then their fence registers (no registers: not fenced)
-- ARGV[1]  how many of KEYS are locks   ARGV[2] holder token   ARGV[3] ttl in ms
-- ARGV[4]  the caller's wall clock in µs (only when fenced)
-- Returns -now or {fence, now} if granted, as limits.lua explains (always -now when not fenced).
-- Otherwise returns {position, holder token, its ttl in ms} of the first held.
-- At most 300 bytes of the holder's token are read, because any client can store a longer value in a lock's key.
-- include: limits.lua
local locks = tonumber(ARGV[1])
local token = ARGV[2]
if locks == 1 then
  if not redis.call('SET', KEYS[1], token, 'NX', 'PX', ARGV[3]) then
    -- Reading the key arms client tracking: the caller is notified when the lock is freed.
    return {1, redis.call('GETRANGE', KEYS[1], 0, 299), redis.call('PTTL', KEYS[1])}
  end
else
  for i = 1, locks do
    if redis.call('EXISTS', KEYS[i]) == 1 then
      return {i, redis.call('GETRANGE', KEYS[i], 0, 299), redis.call('PTTL', KEYS[i])}
    end
  end
  for i = 1, locks do redis.call('SET', KEYS[i], token, 'PX', ARGV[3]) end
end
if #KEYS == locks then return -clock() end
return raise(locks + 1, ARGV[4], ARGV[3])
