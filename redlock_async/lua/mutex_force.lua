-- mutex_force.lua: free a lock whoever holds it.
-- KEYS[1]  lock key
-- Returns 1 if it was held. A key of another type is an error (WRONGTYPE) and stays.
return redis.call('GET', KEYS[1]) and redis.call('DEL', KEYS[1]) or 0
