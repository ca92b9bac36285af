-- fair_acquire.lua: take the lock if it is free and nobody is ahead of us; with a ticket, queue for it.
-- KEYS[1] lock   KEYS[2] queue: waiters by ticket   KEYS[3] until when each waiter counts, in ms of node time
-- KEYS[4] ticket register   KEYS[5] fence register (only when fenced)
-- ARGV[1] holder token   ARGV[2] ttl in ms   ARGV[3] fencing candidate: the caller's wall clock in µs
-- ARGV[4] prefix of the keys that wake waiters   ARGV[5] our name in the queue, '' for one who does not queue
-- ARGV[6] our ticket   ARGV[7] ms our place is kept   ARGV[8] ms the ticket register is kept
-- Returns the fence (1 when not fenced) if granted, else {token, ms, 0}: the holder and its ttl, or {waiter, ms, 1}: who
-- is first in the queue, and for how long its place is kept.
local lock, queue, alive, register = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local me = ARGV[5] ~= '' and ARGV[5]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

-- The first whose place is still kept; those before it have died.
local function first()
  while true do
    local head = redis.call('ZRANGE', queue, 0, 0)[1]
    if not head then return end
    local till = tonumber(redis.call('HGET', alive, head) or 0)
    if till > now then return head, till end
    redis.call('ZREM', queue, head)
    redis.call('HDEL', alive, head)
  end
end

-- Each waiter reads a key of its own, which never stays: writing it tells that one, and nobody else.
local function wake(who)
  redis.call('SET', ARGV[4] .. who, '', 'PX', 1000)
  redis.call('DEL', ARGV[4] .. who)
end

local was = redis.call('ZRANGE', queue, 0, 0)[1]
if me then
  redis.call('ZADD', queue, ARGV[6], me)
  -- As in fair_wait.lua.
  local highest = redis.call('ZRANGE', queue, -1, -1, 'WITHSCORES')[2]
  local stored = redis.call('GETSET', register, highest)
  if stored and tonumber(stored) > tonumber(highest) then highest = stored end
  redis.call('SET', register, highest, 'PX', ARGV[8])
  redis.call('HSET', alive, me, string.format('%.0f', now + ARGV[7]))
  for _, key in ipairs({queue, alive}) do
    if redis.call('PTTL', key) < tonumber(ARGV[7]) then redis.call('PEXPIRE', key, ARGV[7]) end
  end
end
local head, till = first()
if head and head ~= me then
  if head ~= was then wake(head) end
  if me then
    redis.call('EXISTS', ARGV[4] .. me)
  else
    local holder = redis.call('GET', lock)
    if holder then return {holder, redis.call('PTTL', lock), 0} end
  end
  return {head, till - now, 1}
end
if not redis.call('SET', lock, ARGV[1], 'NX', 'PX', ARGV[2]) then
  -- Reading the key arms client tracking on it: the first in the queue is told when it is freed.
  return {redis.call('GET', lock), redis.call('PTTL', lock), 0}
end
-- Our place stays, until we say that we have the lock: too few nodes may grant it, and their votes are not taken all at
-- once. Where a vote had cost the place, whoever came later could get one here now, and another where we try next.
if #KEYS == 4 then return 1 end
-- As in mutex_acquire.lua.
local now_us = time[1] * 1000000 + time[2]
local fence = math.min(tonumber(ARGV[3]), now_us + 1000000)
local stored = redis.call('GETSET', KEYS[5], string.format('%.0f', fence))
fence = math.max(fence, stored and tonumber(stored) + 1 or now_us - 1000000)
redis.call('SET', KEYS[5], string.format('%.0f', fence))
return fence
