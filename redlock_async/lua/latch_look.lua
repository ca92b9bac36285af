-- latch_look.lua: read the events that a latch has counted here; client tracking then reports later changes.
-- KEYS[1] ids of the events   KEYS[2] its state: count, open   ARGV[1] count   ARGV[2] ms to keep it unused
-- Returns {1 if open else 0, id...}, or the count in use here as a string if it is another one.
local bound = redis.call('HGET', KEYS[2], 'count')
if bound and bound ~= ARGV[1] then return bound end
for _, key in ipairs(KEYS) do
  -- As in latch_count.lua.
  local left = redis.call('PTTL', key)
  if left >= 0 and left < tonumber(ARGV[2]) then redis.call('PEXPIRE', key, string.format('%.0f', ARGV[2] * 1.5)) end
end
-- The keys are read last, because our own write disarms client tracking.
local found = redis.call('SMEMBERS', KEYS[1])
table.insert(found, 1, redis.call('HEXISTS', KEYS[2], 'open'))
return found
