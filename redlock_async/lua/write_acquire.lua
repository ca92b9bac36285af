-- write_acquire.lua: acquire the lock if it has no holder and no reader; else, if requested, keep new readers waiting.
-- KEYS[1]  lock key   KEYS[2] the readers   KEYS[3] the waiting writer's reservation
-- KEYS[4]  fence register (absent: not fenced)
-- ARGV[1]  holder token   ARGV[2] ttl in ms   ARGV[3] the value of the lock key while there are readers
-- ARGV[4]  the reservation to leave, or empty for none   ARGV[5] its ttl in ms
-- ARGV[6]  the caller's wall clock in µs (only when fenced)
-- Returns -now or {fence, now} if granted, as limits.lua explains (always -now when not fenced).
-- Otherwise returns {holder token, ms until the last holder's lease expires}.
-- include: limits.lua
local lock, readers, reservation = KEYS[1], KEYS[2], KEYS[3]
-- At most 300 bytes, as in mutex_acquire.lua.
local holder = redis.call('EXISTS', lock) == 1 and redis.call('GETRANGE', lock, 0, 299)
if holder and holder ~= ARGV[3] then return {holder, redis.call('PTTL', lock)} end
if holder then
  local time = redis.call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  redis.call('ZREMRANGEBYSCORE', readers, '-inf', now)
  local last = redis.call('ZRANGE', readers, -1, -1, 'WITHSCORES')
  if last[1] then
    if ARGV[4] ~= '' then
      local waiting = redis.call('GET', reservation)
      -- It is not renewed at every attempt, because each change of it wakes the waiting readers.
      if not waiting or (waiting == ARGV[4] and redis.call('PTTL', reservation) * 2 < tonumber(ARGV[5])) then
        redis.call('SET', reservation, ARGV[4], 'PX', ARGV[5])
      end
      -- Our own write has disarmed client tracking, which waiting readers of the same process need.
      redis.call('EXISTS', reservation)
    end
    return {holder, last[2] - now}
  end
end
redis.call('SET', lock, ARGV[1], 'PX', ARGV[2])
-- After a force-release or expiry, former readers hold nothing any more.
redis.call('DEL', readers)
-- The reservation stays until its writer confirms that it has the lock: too few nodes may grant it, and readers would
-- get in.
if not KEYS[4] then return -clock() end
return raising(ARGV[6], ARGV[2], clock(), redis.call)(4, #KEYS)
