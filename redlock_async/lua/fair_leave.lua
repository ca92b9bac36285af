-- fair_leave.lua: leave the queue, with the lock or without it, and wake the next waiter if we were the first.
-- KEYS[1] queue: waiters by ticket   KEYS[2] until when each queue entry is valid
-- ARGV[1] prefix of the keys that wake waiters   ARGV[2] the waiter   ARGV[3] ms a queue entry is valid
-- Returns 1 if it was in the queue, else 0.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local was = redis.call('ZRANGE', KEYS[1], 0, 0)[1]
local had = redis.call('ZREM', KEYS[1], ARGV[2])
redis.call('HDEL', KEYS[2], ARGV[2])
-- Its own key too, so that the server stops tracking it. pcall: at OOM it can still leave.
local touched = {ARGV[2]}
-- Wake the next waiter. If its last heartbeat is so old that it may be dead, also wake the one behind it, which then
-- asks and learns until when the entry before its own is valid.
local behind, kept = was == ARGV[2] and redis.call('ZRANGE', KEYS[1], 0, 0)[1], 0
while behind and kept < ARGV[3] / 2 do
  kept = tonumber(redis.call('HGET', KEYS[2], behind) or 0) - now
  touched[#touched + 1] = behind
  behind = redis.call('ZRANGE', KEYS[1], #touched - 1, #touched - 1)[1]
end
for _, who in ipairs(touched) do
  redis.pcall('SET', ARGV[1] .. who, '', 'PX', 1000)
  redis.call('DEL', ARGV[1] .. who)
end
return had
