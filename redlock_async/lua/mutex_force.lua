-- mutex_force.lua: free a lock whoever holds it.
-- KEYS[1]  lock key   KEYS[2] what readers look at to hear of this
-- Returns 1 if it was held. A key of another type is an error (WRONGTYPE) and stays.
if not redis.call('GET', KEYS[1]) then return 0 end
redis.call('DEL', KEYS[1])
-- Of the lock key readers hear nothing: it changes with each of them. Behind the DEL, so that it works at OOM.
redis.call('SET', KEYS[2], '', 'PX', 1000)
redis.call('DEL', KEYS[2])
return 1
