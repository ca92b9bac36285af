-- latch_count.lua: add events to a latch, and open it if the caller knows that it is complete.
-- KEYS[1] ids of the events   KEYS[2] its state: count, open   ARGV[1] count   ARGV[2] ms to keep it unused
-- ARGV[3] 1 to open it   ARGV[4...] ids
-- Returns 1, or the count in use here as a string if it is another one; then nothing is changed.
local bound = redis.call('HGET', KEYS[2], 'count')
if bound and bound ~= ARGV[1] then return bound end
if not bound then redis.call('HSET', KEYS[2], 'count', ARGV[1]) end
if ARGV[3] == '1' then redis.call('HSETNX', KEYS[2], 'open', 1) end
for i = 4, #ARGV do redis.call('SADD', KEYS[1], ARGV[i]) end
-- The expiry is set rarely, and therefore to 1.5 times the retention: every change of it wakes the waiters for nothing.
for _, key in ipairs(KEYS) do
  if redis.call('PTTL', key) < tonumber(ARGV[2]) then
    redis.call('PEXPIRE', key, string.format('%.0f', ARGV[2] * 1.5))
  end
  -- Our own write has disarmed client tracking, which waiters of our process need for later changes.
  redis.call('EXISTS', key)
end
return 1
