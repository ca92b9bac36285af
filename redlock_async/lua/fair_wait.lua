-- fair_wait.lua: keep the places of many waiters, and put back those that are missing.
-- KEYS[1] queue: waiters by ticket   KEYS[2] until when each waiter counts, in ms of node time   KEYS[3] ticket register
-- ARGV[1] prefix of the keys that wake waiters   ARGV[2] ms the places are kept   ARGV[3] ms the register is kept
-- ARGV[2i+2] ticket   ARGV[2i+3] its waiter
-- Returns the waiter that has become the first by this, as when those before it have died; it may be one of the caller's,
-- which nobody else tells: a server does not report to a client what that has changed itself. Else for how many ms the
-- place of the first is kept: if it dies, somebody has to look when those are over.
local queue, alive, register = KEYS[1], KEYS[2], KEYS[3]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local till = string.format('%.0f', now + ARGV[2])
local was = redis.call('ZRANGE', queue, 0, 0)[1]
for i = 4, #ARGV, 2 do
  redis.call('ZADD', queue, ARGV[i], ARGV[i + 1])
  redis.call('HSET', alive, ARGV[i + 1], till)
end
for _, key in ipairs({queue, alive}) do
  if redis.call('PTTL', key) < tonumber(ARGV[2]) then redis.call('PEXPIRE', key, ARGV[2]) end
end
-- As high as any place here, though it may have been lost. GETSET, not GET: a write is never tracked.
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
