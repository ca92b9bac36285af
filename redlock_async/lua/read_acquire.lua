-- read_acquire.lua: join the readers, unless a writer holds the lock or waits for it.
-- KEYS[1]  lock key   KEYS[2] the readers   KEYS[3] the waiting writer's reservation
-- KEYS[4]  fence register
-- ARGV[1]  reader token   ARGV[2] ttl in ms   ARGV[3] the value of the lock key while there are readers
-- ARGV[4]  the caller's wall clock in µs
-- ARGV[5]  the token of a read lease that the same task already holds, or empty
-- Returns -now or {fence, now} if granted, as limits.lua explains.
-- Otherwise returns {holder token, ms}; the token is nil for a writer that only waits.
-- include: limits.lua
local lock, readers = KEYS[1], KEYS[2]
local ttl = tonumber(ARGV[2])
-- Reading a key arms client tracking: the caller is notified when it changes. The reservation is read first: while it
-- exists, the lock key only changes because readers renew or leave, which does not concern a reader that must wait.
local must_wait = redis.call('EXISTS', KEYS[3]) == 1
-- A task that already reads must not wait: the writer waits for its lease, and it would wait for the writer. ZADD with
-- INCR 0 looks the lease up as a write, which is not tracked and changes nothing.
if must_wait and ARGV[5] ~= '' then must_wait = not redis.call('ZADD', readers, 'XX', 'INCR', 0, ARGV[5]) end
if must_wait then return {false, redis.call('PTTL', KEYS[3])} end
-- At most 300 bytes, as in mutex_acquire.lua.
local holder = redis.call('EXISTS', lock) == 1 and redis.call('GETRANGE', lock, 0, 299)
if holder and holder ~= ARGV[3] then return {holder, redis.call('PTTL', lock)} end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
-- The lock key outlives every reader by up to a second, so that it changes, and wakes its waiters, about once per
-- second instead of with every renewal of every reader.
local stay = ttl + math.min(1000, math.floor(ttl / 2))
-- Readers without a lock key are left over from a force-release and hold nothing any more.
if not holder then
  redis.call('SET', lock, ARGV[3], 'PX', stay)
  redis.call('DEL', readers)
elseif redis.call('PTTL', lock) < ttl then
  redis.call('PEXPIRE', lock, stay)
end
redis.call('ZREMRANGEBYSCORE', readers, '-inf', now)
-- The readers are only accessed by writes, which are never tracked, so that a join or leave causes no invalidations.
local left = redis.call('PTTL', lock)
local joined = redis.call('PEXPIRE', readers, left) == 1
redis.call('ZADD', readers, string.format('%.0f', now + ttl), ARGV[1])
if not joined then redis.call('PEXPIRE', readers, left) end
if joined then
  -- The first of these readers has raised the register above every earlier writer, fenced or not: later readers share
  -- its value.
  local shared = redis.call('INCRBY', KEYS[4], 0)
  if shared > 0 then return out_of_range(shared, clock()) or {shared, clock()} end
  redis.call('DEL', KEYS[4])
end
return raising(ARGV[4], ttl, clock(), redis.call)(4, #KEYS)
