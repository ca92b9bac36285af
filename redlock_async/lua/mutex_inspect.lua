-- mutex_inspect.lua: read the holder of a lock on this node.
-- KEYS[1]  lock key
-- Returns {holder token, its ttl in ms} (-1: without expiry), or nil when it is free. Tokens are cut at 1,024 bytes.
if redis.call('EXISTS', KEYS[1]) == 0 then return end
return {redis.call('GETRANGE', KEYS[1], 0, 1023), redis.call('PTTL', KEYS[1])}
