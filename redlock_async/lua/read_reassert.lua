-- read_reassert.lua: raise the fence register to our token where we are a reader; optionally become a reader again.
-- KEYS[1]  lock key   KEYS[2] the readers   KEYS[3] fence register
-- ARGV[1]  reader token   ARGV[2] ttl in ms, or 0: do not become a reader again
-- ARGV[3]  the value of the lock key while there are readers   ARGV[4] our fencing token, or 0
-- Returns 1 if we are a reader afterwards, else 0, with nothing changed.
-- include: limits.lua
local lock, readers = KEYS[1], KEYS[2]
local ttl = tonumber(ARGV[2])
local rejected = ARGV[4] ~= '0' and out_of_range(ARGV[4], clock())
if rejected then return rejected end
local holder = redis.call('GET', lock)
if holder and holder ~= ARGV[3] then return 0 end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
-- Only if it is held: after a write that needs no memory, a full server would accept a lost reader again.
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
  -- Reading the lock key again arms client tracking, which our own write has disarmed.
  local left = redis.call('PTTL', lock)
  first = redis.call('PEXPIRE', readers, left) == 0
  redis.call('ZADD', readers, string.format('%.0f', now + ttl), ARGV[1])
  if first then redis.call('PEXPIRE', readers, left) end
end
local fence = tonumber(ARGV[4])
local stored = redis.call('INCRBY', KEYS[3], 0)
-- Later readers share the register's value, so the first one leaves it above every earlier writer.
if first then fence = math.max(fence, stored + 1) end
-- A missing register does not start in the past, as in limits.lua.
if stored == 0 then fence = math.max(fence, clock()) end
if fence > stored then redis.call('SET', KEYS[3], string.format('%.0f', fence)) end
return 1
