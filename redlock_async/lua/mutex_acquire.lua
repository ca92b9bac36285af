-- mutex_acquire.lua: take all the locks or none, and raise their fence registers.
-- KEYS     the lock keys, then one fence register for each (none of them: not fenced)
-- ARGV[1]  how many of KEYS are locks   ARGV[2] holder token   ARGV[3] ttl in ms
-- ARGV[4]  fencing candidate: the caller's wall clock in µs (only when fenced)
-- Returns the fence (1 when not fenced) if granted, else {position, holder token, its ttl in ms} of the first that is held.
local locks = tonumber(ARGV[1])
local token = ARGV[2]
if locks == 1 then
  if not redis.call('SET', KEYS[1], token, 'NX', 'PX', ARGV[3]) then
    -- Reading the key arms client tracking on it: the caller is told when it is freed.
    return {1, redis.call('GET', KEYS[1]), redis.call('PTTL', KEYS[1])}
  end
else
  for i = 1, locks do
    local holder = redis.call('GET', KEYS[i])
    if holder then return {i, holder, redis.call('PTTL', KEYS[i])} end
  end
  for i = 1, locks do redis.call('SET', KEYS[i], token, 'PX', ARGV[3]) end
end
if #KEYS == locks then return 1 end
-- The clamps: a client whose clock is years ahead must not use up the registers' range, and where a register is
-- missing, perhaps lost with the node's data, one whose clock is behind must not start it in the past. Within a second
-- the candidate stands as it is, so that all nodes answer alike and one round trip is enough.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local fence = math.min(tonumber(ARGV[4]), now + 1000000)
-- GETSET, not GET: a write is never tracked, so registers cost no invalidations.
for i = locks + 1, #KEYS do
  local stored = redis.call('GETSET', KEYS[i], string.format('%.0f', fence))
  fence = math.max(fence, stored and tonumber(stored) + 1 or now - 1000000)
end
for i = locks + 1, #KEYS do redis.call('SET', KEYS[i], string.format('%.0f', fence)) end
return fence
