-- node_charter.lua: read which configuration the clients of a node must agree on, and replace it.
-- KEYS[1]  the node's record (see node_record.lua)
-- ARGV[1]  the charter to record; or empty, to read
-- ARGV[2]  the epoch that was read on this node, or -1: nothing is recorded if another charter is there by now
-- Returns {node time in us, charter, since when its sets are recorded in us, longest ttl in ms}.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local function get(field) return redis.call('HGET', KEYS[1], field) or '' end
local function epoch(charter) return string.match(charter, '^%d+') or '-1' end
local function sets(charter) return string.match(charter, '^%d+ ([^@#]*)') end

local before = get('charter')
if ARGV[1] ~= '' and epoch(before) == ARGV[2] then
  local since = sets(before) == sets(ARGV[1]) and get('chartered') or string.format('%.0f', now)
  redis.call('HSET', KEYS[1], 'charter', ARGV[1], 'chartered', since)
end
return {now, get('charter'), tonumber(get('chartered')) or 0, tonumber(get('ttl')) or 0}
