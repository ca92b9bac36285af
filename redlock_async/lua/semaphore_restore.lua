-- semaphore_unchange.lua: take back a number of permits that was set, where nobody has set another since.
-- KEYS[1]  the number of permits
-- ARGV[1]  what was stored   ARGV[2] what was stored before it, or empty: nothing   ARGV[3] ms to keep a number that no
--          operator has set: at least for as long as slots that are held under it
-- Returns 1 if it is as it was, else 0.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
if ARGV[2] == '' then
  redis.call('DEL', KEYS[1])
elseif string.find(ARGV[2], ':', 1, true) then
  redis.call('SET', KEYS[1], ARGV[2])
else
  redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
end
return 1
