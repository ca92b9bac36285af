-- mutex_extend.lua: extend many leases, each only if it is still ours, and never shorten one.
-- KEYS[i]  lock key   ARGV[2i-1] its holder token   ARGV[2i] new ttl in ms, or 0 to only check it
-- Returns for each key 1 ours, 0 missing, -1 another holder's.
local states = {}
for i = 1, #KEYS do
  local key, ttl = KEYS[i], tonumber(ARGV[2 * i])
  local holder = redis.pcall('GET', key)
  if holder == ARGV[2 * i - 1] then
    if ttl > 0 and redis.call('PTTL', key) < ttl then
      redis.call('PEXPIRE', key, ttl)
      -- Our own write has disarmed client tracking; reading the key arms it again.
      redis.call('EXISTS', key)
    end
    states[i] = 1
  else
    states[i] = holder and -1 or 0
  end
end
return states
