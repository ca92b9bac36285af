-- node_mark.lua: since when this node has kept its data, since when leases may stand, and the longest ttl anybody uses.
-- KEYS[1]  birth mark   KEYS[2] longest ttl   KEYS[3] founding: when a majority of the masters was first seen
-- ARGV[1]  the caller's longest ttl in ms   ARGV[2] µs since the founding, as far as the caller knows, or -1
-- ARGV[3]  1 for a new founding, in place of the one the node knows of
-- Returns {node time in µs, birth in µs or -1, longest ttl in ms, founding in µs or -1}.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
-- pcall: a node that refuses writes (OOM, MISCONF) can still say what it has.
redis.pcall('SET', KEYS[1], string.format('%.0f', now), 'NX')
if tonumber(ARGV[1]) > tonumber(redis.call('GET', KEYS[2]) or 0) then redis.pcall('SET', KEYS[2], ARGV[1]) end
if tonumber(ARGV[2]) >= 0 and (ARGV[3] == '1' or redis.call('EXISTS', KEYS[3]) == 0) then
  redis.pcall('SET', KEYS[3], string.format('%.0f', now - ARGV[2]))
end
-- Read last, so that client tracking reports when one of them is changed or flushed.
return {
  now, tonumber(redis.call('GET', KEYS[1]) or -1), tonumber(redis.call('GET', KEYS[2]) or ARGV[1]),
  tonumber(redis.call('GET', KEYS[3]) or -1),
}
