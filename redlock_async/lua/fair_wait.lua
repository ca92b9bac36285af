-- fair_wait.lua: keep the queue entries of many waiters valid, and restore missing ones.
-- KEYS[1] queue: waiters by ticket   KEYS[2] expiry of each entry, in ms of node time   KEYS[3] ticket register
-- ARGV[1] prefix of the keys that wake waiters   ARGV[2] ms the entries are valid   ARGV[3] ms to keep the register
-- ARGV[2i+2] ticket   ARGV[2i+3] its waiter
-- Returns the waiter that has become the first by this call, because those before it have died. It may be one of the
-- caller's own, which the server does not notify of the caller's changes. Otherwise returns for how many ms the first
-- entry stays valid: if its waiter dies, the queue must be checked again then.
-- include: limits.lua
local queue, alive, register = KEYS[1], KEYS[2], KEYS[3]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local till = string.format('%.0f', now + ARGV[2])
for i = 4, #ARGV, 2 do
  local rejected = out_of_range(ARGV[i], clock())
  if rejected then return rejected end
end
local was = redis.call('ZRANGE', queue, 0, 0)[1]
for i = 4, #ARGV, 2 do
  redis.call('ZADD', queue, ARGV[i], ARGV[i + 1])
  redis.call('HSET', alive, ARGV[i + 1], till)
end
for _, key in ipairs({queue, alive}) do
  if redis.call('PTTL', key) < tonumber(ARGV[2]) then redis.call('PEXPIRE', key, ARGV[2]) end
end
-- The register must not be below any entry, even if it was lost. GETSET, not GET, because a write is never tracked.
local highest = redis.call('ZRANGE', queue, -1, -1, 'WITHSCORES')[2]
local stored = redis.call('GETSET', register, highest)
if stored and tonumber(stored) > tonumber(highest) then highest = stored end
redis.call('SET', register, highest, 'PX', ARGV[3])
local head = redis.call('ZRANGE', queue, 0, 0)[1]
local kept = tonumber(redis.call('HGET', alive, head) or 0) - now
while kept <= 0 do
  redis.call('ZREM', queue, head)
  redis.call('HDEL', alive, head)
  head = redis.call('ZRANGE', queue, 0, 0)[1]
  kept = tonumber(redis.call('HGET', alive, head) or 0) - now
end
if was and head ~= was then
  redis.call('SET', ARGV[1] .. head, '', 'PX', 1000)
  redis.call('DEL', ARGV[1] .. head)
  return head
end
return kept
