-- write_downgrade.lua: turn our lock into a read lease without freeing it in between.
-- KEYS[1]  lock key   KEYS[2] the readers   KEYS[3] fence register
-- KEYS[4]  the key that notifies readers of a force-release
-- ARGV[1]  token of both leases   ARGV[2] ttl in ms   ARGV[3] the value of the lock key while there are readers
-- ARGV[4]  our fencing token, or 0
-- Returns 1 if it is a read lease now, else 0: the lock was not ours.
-- include: limits.lua
local lock, readers = KEYS[1], KEYS[2]
local rejected = ARGV[4] ~= '0' and out_of_range(ARGV[4], clock())
if rejected then return rejected end
if redis.call('GET', lock) ~= ARGV[1] then return 0 end
local ttl = tonumber(ARGV[2])
local stay = ttl + math.min(1000, math.floor(ttl / 2))
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('DEL', readers)
redis.call('ZADD', readers, string.format('%.0f', now + ttl), ARGV[1])
redis.call('PEXPIRE', readers, stay)
redis.call('SET', lock, ARGV[3], 'PX', stay)
-- Later readers share the register's value, so it must be above the token of every earlier writer, ours included.
local above = tonumber(ARGV[4]) + 1
local stored = redis.call('INCRBY', KEYS[3], 1)
-- A missing register does not start in the past, as in limits.lua.
if stored == 1 then above = math.max(above, clock()) end
if stored < above then redis.call('SET', KEYS[3], string.format('%.0f', above)) end
redis.call('EXISTS', lock)
-- Reading it arms client tracking: the reader is notified immediately.
redis.call('EXISTS', KEYS[4])
return 1
