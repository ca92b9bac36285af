-- semaphore_retain.lua: let the slots that are still ours expire, and keep the number of permits for as long.
-- KEYS[1]  their semaphore's number of permits   then the slots
-- ARGV[1]  holder token   ARGV[2] for how many ms they stay taken   ARGV[3] the number of permits
-- Returns how many were ours.
local ours = 0
for i = 2, #KEYS do
  if redis.call('GET', KEYS[i]) == ARGV[1] then
    ours = ours + 1
    redis.call('PEXPIRE', KEYS[i], ARGV[2])
  end
end
if ours == 0 then return 0 end
local left = redis.call('PTTL', KEYS[1])
-- A number without expiry was set by an operator, and stays.
if left == -2 or (left >= 0 and left < tonumber(ARGV[2])) then redis.call('SET', KEYS[1], ARGV[3], 'PX', ARGV[2]) end
return ours
