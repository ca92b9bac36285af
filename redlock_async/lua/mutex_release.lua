-- mutex_release.lua: delete the locks that are still ours, or let them expire.
-- KEYS     the lock keys   ARGV[1] holder token   ARGV[2] 0 to delete them, else for how many ms they stay locked
-- Returns how many were ours.
local ours = 0
for i = 1, #KEYS do
  if redis.call('GET', KEYS[i]) == ARGV[1] then
    ours = ours + 1
    redis.call('PEXPIRE', KEYS[i], ARGV[2])
  end
end
return ours
