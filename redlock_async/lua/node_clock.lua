-- node_clock.lua: read the clock of this node. In a script, because some proxies close the connection on TIME.
-- KEYS[1]  any key: proxies choose the server by it
-- Returns the node's time in µs.
local time = redis.call('TIME')
return time[1] * 1000000 + time[2]
