-- write_downgrade.lua: turn a lock that is ours into a read lease, with nobody in between.
-- KEYS[1]  lock key   KEYS[2] the readers   KEYS[3] fence register   KEYS[4] what is touched when they are freed by force
-- ARGV[1]  token of both   ARGV[2] ttl in ms   ARGV[3] what the lock key holds while there are readers
-- ARGV[4]  our fencing token, or 0
-- Returns 1 if it is a read lease now, else 0: the lock was not ours.
local lock, readers = KEYS[1], KEYS[2]
if redis.call('GET', lock) ~= ARGV[1] then return 0 end
local ttl = tonumber(ARGV[2])
local stay = ttl + math.min(1000, math.floor(ttl / 2))
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('DEL', readers)
redis.call('ZADD', readers, string.format('%.0f', now + ttl), ARGV[1])
redis.call('PEXPIRE', readers, stay)
redis.call('SET', lock, ARGV[3], 'PX', stay)
-- Readers that join share what the register holds: it must be above every writer's before them, ours included.
local above = tonumber(ARGV[4]) + 1
local stored = redis.call('INCRBY', KEYS[3], 1)
-- It was missing: as in mutex_acquire.lua, it does not start in the past.
if stored == 1 then above = math.max(above, time[1] * 1000000 + time[2] - 1000000) end
if stored < above then redis.call('SET', KEYS[3], string.format('%.0f', above)) end
redis.call('EXISTS', lock)
-- Reading it arms client tracking: the reader is told at once.
redis.call('EXISTS', KEYS[4])
return 1
