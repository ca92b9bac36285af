-- read_extend.lua: extend many read leases, each only if its reader still has it, and never shorten one.
-- KEYS[3i-2]  lock key   KEYS[3i-1] its readers   KEYS[3i] the key that notifies readers of a force-release
-- ARGV[1]     the value of a lock key while there are readers
-- ARGV[2i]    reader token   ARGV[2i+1] new ttl in ms, or 0 to only check it
-- Returns for each lease 1 ours, 0 missing, -1 another holder's.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local states = {}
for i = 1, #KEYS / 3 do
  local lock, readers = KEYS[3 * i - 2], KEYS[3 * i - 1]
  local token, ttl = ARGV[2 * i], tonumber(ARGV[2 * i + 1])
  local holder = redis.pcall('GET', lock)
  if holder ~= ARGV[1] then
    states[i] = holder and -1 or 0
  else
    -- The first write needs no memory: after one, a server at maxmemory lets a script continue.
    redis.pcall('ZREMRANGEBYSCORE', readers, '-inf', now)
    -- ZADD with INCR 0 reads the expiry as a write, which is not tracked and changes nothing.
    local expiry = redis.pcall('ZADD', readers, 'XX', 'INCR', 0, token)
    if type(expiry) ~= 'string' then
      states[i] = expiry and -1 or 0
    else
      if tonumber(expiry) < now + ttl then
        redis.call('ZADD', readers, string.format('%.0f', now + ttl), token)
        if redis.call('PTTL', lock) < ttl then
          local stay = ttl + math.min(1000, math.floor(ttl / 2))
          redis.call('PEXPIRE', lock, stay)
          redis.call('PEXPIRE', readers, stay)
          -- Our own write has disarmed client tracking; reading the key arms it again.
          redis.call('EXISTS', lock)
        end
      end
      -- Reading it arms client tracking: the holder is notified immediately, and only of a force-release.
      redis.call('EXISTS', KEYS[3 * i])
      states[i] = 1
    end
  end
end
return states
