-- mutex_inspect.lua: who holds a lock on this node.
-- KEYS[1]  lock key
-- Returns {holder token, its ttl in ms} (-1: a key without expiry), or nil when it is free.
local holder = redis.call('GET', KEYS[1])
return holder and {holder, redis.call('PTTL', KEYS[1])}
