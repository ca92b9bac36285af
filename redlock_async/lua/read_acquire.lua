-- read_acquire.lua: join the readers, unless a writer holds the lock or waits for it.
-- KEYS[1]  lock key   KEYS[2] the readers   KEYS[3] the waiting writer's hint
-- KEYS[4]  fence register
-- ARGV[1]  reader token   ARGV[2] ttl in ms   ARGV[3] what the lock key holds while there are readers
-- ARGV[4]  fencing candidate: the caller's wall clock in µs
-- ARGV[5]  the token of a read lease that the same caller has, or empty
-- Returns the fence if granted, else {holder token, ms}: nil for a writer that only waits.
local lock, readers = KEYS[1], KEYS[2]
local ttl = tonumber(ARGV[2])
-- Reading a key arms client tracking on it: the caller is told when it changes. The hint comes first, for as long as it
-- is there the lock key changes only because readers stay or leave, which is nothing to one that is held out.
local held_out = redis.call('EXISTS', KEYS[3]) == 1
-- Not beside a lease of one's own: the writer waits for that one, and it would wait for the writer. Adding nothing looks
-- for it as a write, which is not tracked and changes nothing.
if held_out and ARGV[5] ~= '' then held_out = not redis.call('ZADD', readers, 'XX', 'INCR', 0, ARGV[5]) end
if held_out then return {false, redis.call('PTTL', KEYS[3])} end
local holder = redis.call('GET', lock)
if holder and holder ~= ARGV[3] then return {holder, redis.call('PTTL', lock)} end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
-- The lock key outlives every reader by up to this, so that it changes, and wakes who waits for it, once in that time
-- and not with every renewal of every reader.
local stay = ttl + math.min(1000, math.floor(ttl / 2))
-- Both are empty unless somebody freed the lock by force: whoever was a reader then is none any more.
if not holder then
  redis.call('SET', lock, ARGV[3], 'PX', stay)
  redis.call('DEL', readers)
elseif redis.call('PTTL', lock) < ttl then
  redis.call('PEXPIRE', lock, stay)
end
redis.call('ZREMRANGEBYSCORE', readers, '-inf', now)
-- Only writes touch the readers here: a write is never tracked, so that their coming and going costs no invalidations.
local left = redis.call('PTTL', lock)
local joined = redis.call('PEXPIRE', readers, left) == 1
redis.call('ZADD', readers, string.format('%.0f', now + ttl), ARGV[1])
if not joined then redis.call('PEXPIRE', readers, left) end
if joined then
  -- The first of these readers has raised the register above every earlier writer, whether it wanted a fence or not: the
  -- others share what it holds.
  local shared = redis.call('INCRBY', KEYS[4], 0)
  if shared > 0 then return shared end
  redis.call('DEL', KEYS[4])
end
-- As in mutex_acquire.lua.
local micros = time[1] * 1000000 + time[2]
local fence = math.min(tonumber(ARGV[4]), micros + 1000000)
local stored = redis.call('GETSET', KEYS[4], string.format('%.0f', fence))
fence = math.max(fence, stored and tonumber(stored) + 1 or micros - 1000000)
redis.call('SET', KEYS[4], string.format('%.0f', fence))
return fence
