-- latch_count.lua: add events to a latch, and open it if the caller knows that it is complete.
-- KEYS[1] ids of the events   KEYS[2] its state: count, open   ARGV[1] count   ARGV[2] ms it is kept without use
-- ARGV[3] 1 to open it   ARGV[4...] ids
-- Returns 1, or the count in use here as a string when that is another; then nothing is changed.
local bound = redis.call('HGET', KEYS[2], 'count')
if bound and bound ~= ARGV[1] then return bound end
if not bound then redis.call('HSET', KEYS[2], 'count', ARGV[1]) end
if ARGV[3] == '1' then redis.call('HSETNX', KEYS[2], 'open', 1) end
for i = 4, #ARGV do redis.call('SADD', KEYS[1], ARGV[i]) end
-- Seldom, and so for half as long again: each time it wakes those who wait, which what changes nothing must not.
for _, key in ipairs(KEYS) do
  if redis.call('PTTL', key) < tonumber(ARGV[2]) then
    redis.call('PEXPIRE', key, string.format('%.0f', ARGV[2] * 1.5))
  end
  -- Our own write disarmed client tracking; those of our process who wait want to be told of what comes after it.
  redis.call('EXISTS', key)
end
return 1
