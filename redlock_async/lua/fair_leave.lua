-- fair_leave.lua: give up a place, with the lock or without, and tell the next if it was the first.
-- KEYS[1] queue: waiters by ticket   KEYS[2] until when each waiter counts
-- ARGV[1] prefix of the keys that wake waiters   ARGV[2] the waiter   ARGV[3] ms a place is kept
-- Returns 1 if it had a place, else 0.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local was = redis.call('ZRANGE', KEYS[1], 0, 0)[1]
local had = redis.call('ZREM', KEYS[1], ARGV[2])
redis.call('HDEL', KEYS[2], ARGV[2])
-- Its own key too, so that the server forgets that anybody wants to be told of it. pcall: at OOM it can still leave.
local touched = {ARGV[2]}
-- The next one; and if that has said nothing for so long that it may be dead, the one behind it as well, who then asks, and
-- so learns until when the place before it is kept.
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
