-- locks_inspect.lua: read the holders of many locks on this node.
-- KEYS     for each lock: lock key, fence register
-- Returns for each {value, its ttl in ms, fence or nil}. The ttl is -1 without expiry, -2 if the lock is free, and -3
-- for a key of another type. Values are cut at 1,024 bytes; our own tokens are shorter.
local found = {}
for i = 1, #KEYS, 2 do
  local value = redis.pcall('GETRANGE', KEYS[i], 0, 1023)
  local left = redis.call('PTTL', KEYS[i])
  if type(value) ~= 'string' then value, left = '', -3 end
  local fence = redis.pcall('GET', KEYS[i + 1])
  found[#found + 1] = {value, left, type(fence) == 'string' and tonumber(fence) or false}
end
return found
