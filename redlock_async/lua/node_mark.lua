-- node_mark.lua: since when this node has kept its data, and the longest ttl anybody uses on it.
-- KEYS[1]  birth mark   KEYS[2] longest ttl   ARGV[1] the caller's longest ttl in ms
-- Returns {node time in µs, birth in µs, longest ttl in ms}.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
-- pcall: a node that refuses writes (OOM, MISCONF) can still say what it has; without a mark it counts as just born.
redis.pcall('SET', KEYS[1], string.format('%.0f', now), 'NX')
if tonumber(ARGV[1]) > tonumber(redis.call('GET', KEYS[2]) or 0) then redis.pcall('SET', KEYS[2], ARGV[1]) end
-- Read last, so that client tracking reports when either is changed or flushed.
return {now, tonumber(redis.call('GET', KEYS[1]) or now), tonumber(redis.call('GET', KEYS[2]) or ARGV[1])}
