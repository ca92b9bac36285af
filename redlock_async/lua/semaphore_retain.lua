-- semaphore_retain.lua: let a slot that is still ours run out, and keep the number of permits for as long.
-- KEYS[1]  slot   KEYS[2] its semaphore's number of permits
-- ARGV[1]  holder token   ARGV[2] ms it is to stay taken   ARGV[3] the number of permits
-- Returns 1 if it was ours, else 0.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
if redis.call('PTTL', KEYS[2]) < tonumber(ARGV[2]) then redis.call('SET', KEYS[2], ARGV[3], 'PX', ARGV[2]) end
return 1
