-- semaphore_extend.lua: extend many slots, each only if it is still ours, together with their number of permits.
-- KEYS     for each: the slot, its semaphore's number of permits
-- ARGV     for each: holder token, new ttl in ms (0: only check it), the number of permits
-- Returns for each slot 1 ours, 0 missing, -1 another holder's.
local states = {}
for number = 2, #KEYS, 2 do
  local key, i = KEYS[number - 1], number / 2
  local token, ttl, permits = ARGV[3 * i - 2], tonumber(ARGV[3 * i - 1]), ARGV[3 * i]
  local holder = redis.pcall('GET', key)
  if holder == token then
    states[i] = 1
    if ttl > 0 then
      -- The first write needs no memory: after one, a server at maxmemory lets a script continue.
      if redis.call('PTTL', key) < ttl then
        redis.call('PEXPIRE', key, ttl)
        -- Our own write has disarmed client tracking; reading the key arms it again.
        redis.call('EXISTS', key)
      end
      local left = redis.call('PTTL', KEYS[number])
      -- A number without expiry was set by an operator, and stays. If the number cannot be stored, another client could
      -- store a different one, so this node does not count.
      if left == -2 or (left >= 0 and left < ttl) then
        if redis.pcall('SET', KEYS[number], permits, 'PX', 2 * ttl).err then states[i] = 0 end
      end
    end
  else
    states[i] = holder and -1 or 0
  end
end
return states
