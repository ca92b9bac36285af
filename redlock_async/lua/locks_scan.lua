-- locks_scan.lua: look through a portion of this node's keys, and tell which of them may be locks.
-- KEYS     none: which there are is the question
-- ARGV[1]  cursor, 0 to begin   ARGV[2] pattern of the keys   ARGV[3] about how many to look through
-- ARGV[4]  what the library's own keys begin with   ARGV[5] 1: also what another library may have locked
-- Returns {next cursor, key...}; the cursor is 0 after the last portion.
local portion = redis.call('SCAN', ARGV[1], 'MATCH', ARGV[2], 'COUNT', ARGV[3])
local own = ARGV[4]
local found = {portion[1]}
for _, key in ipairs(portion[2]) do
  local lock
  if string.sub(key, 1, #own) == own then
    -- Fence registers are many, and no locks.
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
