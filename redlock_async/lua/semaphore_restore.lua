-- semaphore_restore.lua: undo a change of the number of permits, unless another number was set since.
-- KEYS[1]  the number of permits
-- ARGV[1]  the value that was stored   ARGV[2] the value before it, or empty for none
-- ARGV[3]  ms to keep a number that no operator has set: at least as long as slots that are held under it
-- Returns 1 if the old value was restored, else 0.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
if ARGV[2] == '' then
  redis.call('DEL', KEYS[1])
elseif string.find(ARGV[2], ':', 1, true) then
  redis.call('SET', KEYS[1], ARGV[2])
else
  redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
end
return 1
