-- read_release.lua: leave the readers, or stay one for a while; the last reader to leave frees the lock.
-- KEYS[1]  lock key   KEYS[2] the readers
-- ARGV[1]  reader token   ARGV[2] 0 to leave, else ms to stay   ARGV[3] value of the lock key while there are readers
-- Returns 1 if it was a reader, else 0.
local lock, readers = KEYS[1], KEYS[2]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZREMRANGEBYSCORE', readers, '-inf', now)
local ours = 0
if ARGV[2] == '0' then
  ours = redis.call('ZREM', readers, ARGV[1])
elseif redis.call('ZADD', readers, 'XX', 'INCR', 0, ARGV[1]) then
  ours = 1
  redis.call('ZADD', readers, string.format('%.0f', now + ARGV[2]), ARGV[1])
end
-- A refused reader does not touch the lock key while others read: reading it would arm client tracking for nothing.
if ours == 0 and redis.call('EXISTS', readers) == 1 then return 0 end
-- After a force-release another client may have locked the name: then there are no readers.
if redis.call('GET', lock) ~= ARGV[3] then return 0 end
if redis.call('PTTL', lock) < tonumber(ARGV[2]) then redis.call('PEXPIRE', lock, ARGV[2]) end
-- The last reader that is left may have died: the lock key outlives its lease only by the usual margin.
local last = redis.call('ZRANGE', readers, -1, -1, 'WITHSCORES')[2]
if last and redis.call('PTTL', lock) > last - now + math.min(1000, math.floor((last - now) / 2)) then
  redis.call('PEXPIRE', lock, string.format('%.0f', last - now))
end
-- Reading the lock key last arms client tracking again. 0: no readers are left.
if redis.call('PEXPIRE', readers, redis.call('PTTL', lock)) == 0 then redis.call('DEL', lock) end
return ours
