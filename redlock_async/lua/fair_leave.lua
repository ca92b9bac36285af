-- fair_leave.lua: give up a place, with the lock or without, and tell the next if it was the first.
-- KEYS[1] queue: waiters by ticket   KEYS[2] until when each waiter counts
-- ARGV[1] prefix of the keys that wake waiters   ARGV[2] the waiter
-- Returns 1 if it had a place, else 0.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local was = redis.call('ZRANGE', KEYS[1], 0, 0)[1]
local had = redis.call('ZREM', KEYS[1], ARGV[2])
redis.call('HDEL', KEYS[2], ARGV[2])
-- Its own key too, so that the server forgets that anybody wants to be told of it. pcall: at OOM it can still leave.
local touched = {ARGV[2]}
local head = redis.call('ZRANGE', KEYS[1], 0, 0)[1]
while head and tonumber(redis.call('HGET', KEYS[2], head) or 0) <= now do
  redis.call('ZREM', KEYS[1], head)
  redis.call('HDEL', KEYS[2], head)
  head = redis.call('ZRANGE', KEYS[1], 0, 0)[1]
end
if head ~= was then touched[2] = head end
for _, who in ipairs(touched) do
  redis.pcall('SET', ARGV[1] .. who, '', 'PX', 1000)
  redis.call('DEL', ARGV[1] .. who)
end
return had
