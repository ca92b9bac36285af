-- write_acquire.lua: take the lock if nobody holds it and nobody reads; else, if asked to, hold out new readers.
-- KEYS[1]  lock key   KEYS[2] the readers   KEYS[3] the waiting writer's hint
-- KEYS[4]  fence register (absent: not fenced)
-- ARGV[1]  holder token   ARGV[2] ttl in ms   ARGV[3] what the lock key holds while there are readers
-- ARGV[4]  what to leave as the hint, or empty: no hint   ARGV[5] its ttl in ms
-- ARGV[6]  fencing candidate: the caller's wall clock in µs (only when fenced)
-- Returns the fence (1 when not fenced) if granted, else {holder token, ms until the last of them runs out}.
local lock, readers, hint = KEYS[1], KEYS[2], KEYS[3]
local holder = redis.call('GET', lock)
if holder and holder ~= ARGV[3] then return {holder, redis.call('PTTL', lock)} end
local time = redis.call('TIME')
if holder then
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  redis.call('ZREMRANGEBYSCORE', readers, '-inf', now)
  local last = redis.call('ZRANGE', readers, -1, -1, 'WITHSCORES')
  if last[1] then
    if ARGV[4] ~= '' then
      local waiting = redis.call('GET', hint)
      -- Not at every attempt: each time it changes, the readers it holds out are told.
      if not waiting or (waiting == ARGV[4] and redis.call('PTTL', hint) * 2 < tonumber(ARGV[5])) then
        redis.call('SET', hint, ARGV[4], 'PX', ARGV[5])
      end
      -- For readers of the same process, who wait for the hint to go: our own write disarmed client tracking on it.
      redis.call('EXISTS', hint)
    end
    return {holder, last[2] - now}
  end
end
redis.call('SET', lock, ARGV[1], 'PX', ARGV[2])
-- Freed by force, or run out: whoever was a reader is none any more.
redis.call('DEL', readers)
-- The hint stays until its writer says that it has the lock: too few nodes may grant it, and readers would get in.
if not KEYS[4] then return 1 end
-- As in mutex_acquire.lua.
local micros = time[1] * 1000000 + time[2]
local fence = math.min(tonumber(ARGV[6]), micros + 1000000)
local stored = redis.call('GETSET', KEYS[4], string.format('%.0f', fence))
fence = math.max(fence, stored and tonumber(stored) + 1 or micros - 1000000)
redis.call('SET', KEYS[4], string.format('%.0f', fence))
return fence
