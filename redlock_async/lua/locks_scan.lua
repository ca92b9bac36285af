-- locks_scan.lua: scan a portion of this node's keys, and return those that may be locks.
-- KEYS     none: the scan finds them
-- ARGV[1]  cursor, 0 to start   ARGV[2] pattern of the keys   ARGV[3] about how many keys to scan
-- ARGV[4]  prefix of the library's own keys   ARGV[5] 1 to include locks of other libraries
-- Returns {next cursor, key...}; the cursor is 0 after the last portion.
local portion = redis.call('SCAN', ARGV[1], 'MATCH', ARGV[2], 'COUNT', ARGV[3])
local own = ARGV[4]
local found = {portion[1]}
for _, key in ipairs(portion[2]) do
  local lock
  if string.sub(key, 1, #own) == own then
    -- Fence registers are numerous and are not locks.
    lock = string.sub(key, #own + 1, #own + 6) ~= 'fence:'
  else
    local value = redis.pcall('GETRANGE', key, 0, 32)
    if type(value) == 'string' then
      local token = #value == 33 and string.find(value, '^%x+:$')
      lock = token or (ARGV[5] == '1' and redis.call('PTTL', key) >= 0)
    end
  end
  if lock then found[#found + 1] = key end
end
return found
