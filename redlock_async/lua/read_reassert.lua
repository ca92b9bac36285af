-- read_secure.lua: where we are a reader, raise the fence register to our token; optionally become one again.
-- KEYS[1]  lock key   KEYS[2] the readers   KEYS[3] fence register
-- ARGV[1]  reader token   ARGV[2] ttl in ms, or 0: only where we are one
-- ARGV[3]  what the lock key holds while there are readers   ARGV[4] our fencing token, or 0
-- Returns 1 if we are a reader afterwards, else 0, with nothing changed.
local lock, readers = KEYS[1], KEYS[2]
local ttl = tonumber(ARGV[2])
local holder = redis.call('GET', lock)
if holder and holder ~= ARGV[3] then return 0 end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
-- Only then: behind a write that needs no memory a full server would take a lost reader back.
if holder then redis.call('ZREMRANGEBYSCORE', readers, '-inf', now) end
local first = false
if not holder or not redis.call('ZADD', readers, 'XX', 'INCR', 0, ARGV[1]) then
  if ttl == 0 then return 0 end
  local stay = ttl + math.min(1000, math.floor(ttl / 2))
  if not holder then
    redis.call('SET', lock, ARGV[3], 'PX', stay)
    redis.call('DEL', readers)
  elseif redis.call('PTTL', lock) < ttl then
    redis.call('PEXPIRE', lock, stay)
  end
  -- Reading the lock key again arms client tracking, which our own write would have disarmed.
  local left = redis.call('PTTL', lock)
  first = redis.call('PEXPIRE', readers, left) == 0
  redis.call('ZADD', readers, string.format('%.0f', now + ttl), ARGV[1])
  if first then redis.call('PEXPIRE', readers, left) end
end
local fence = tonumber(ARGV[4])
local stored = redis.call('INCRBY', KEYS[3], 0)
-- Readers that join share what the register holds, so the first one leaves it above every earlier writer.
if first then fence = math.max(fence, stored + 1) end
-- It was missing: as in mutex_acquire.lua, it does not start in the past.
if stored == 0 then fence = math.max(fence, time[1] * 1000000 + time[2] - 1000000) end
if fence > stored then redis.call('SET', KEYS[3], string.format('%.0f', fence)) end
return 1
