-- fair_acquire.lua: acquire the lock if it is free and no waiter is ahead of us; with a ticket, enter the queue.
-- KEYS[1] lock   KEYS[2] queue: waiters by ticket   KEYS[3] until when each queue entry is valid, in ms of node time
-- KEYS[4] ticket register   KEYS[5] the key that wakes us (only when we queue)   the last: fence register (when fenced)
-- ARGV[1] holder token   ARGV[2] ttl in ms   ARGV[3] the caller's wall clock in µs
-- ARGV[4] prefix of the keys that wake waiters   ARGV[5] our name in the queue, or '' if we do not queue
-- ARGV[6] our ticket   ARGV[7] ms our queue entry is valid   ARGV[8] ms to keep the ticket register
-- Returns -now or {fence, now} if granted, as limits.lua explains (always -now when not fenced).
-- Otherwise returns {token, ms, 0}: the holder and its ttl, or {waiter, ms, 1}: the first in the queue, and how long
-- its entry stays valid. Both are cut at 300 bytes, as in mutex_acquire.lua.
-- include: limits.lua
local lock, queue, alive, register = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local me = ARGV[5] ~= '' and ARGV[5]
local rejected = me and out_of_range(ARGV[6], clock())
if rejected then return rejected end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

-- Returns the first waiter whose entry is still valid, and removes the dead ones before it.
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

-- Each waiter reads a key of its own, which never stays: writing it notifies this waiter only.
local function wake(who)
  redis.call('SET', ARGV[4] .. who, '', 'PX', 1000)
  redis.call('DEL', ARGV[4] .. who)
end

local was = redis.call('ZRANGE', queue, 0, 0)[1]
if me then
  redis.call('ZADD', queue, ARGV[6], me)
  -- The register must not be below any entry, as in fair_wait.lua.
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
    redis.call('EXISTS', KEYS[5]) -- one of KEYS: before Redis 7.2, only those are tracked
  else
    if redis.call('EXISTS', lock) == 1 then
      return {redis.call('GETRANGE', lock, 0, 299), redis.call('PTTL', lock), 0}
    end
  end
  return {string.sub(head, 1, 300), till - now, 1}
end
if not redis.call('SET', lock, ARGV[1], 'NX', 'PX', ARGV[2]) then
  -- Reading the key arms client tracking: the first in the queue is notified when the lock is freed.
  return {redis.call('GETRANGE', lock, 0, 299), redis.call('PTTL', lock), 0}
end
-- Our queue entry stays until we confirm that we have the lock: too few nodes may grant it, and not all at once. If a
-- vote cost the entry, a later waiter could get this node's vote now, and the vote of the node that we try next.
local fence = me and 6 or 5
if #KEYS < fence then return -clock() end
return raising(ARGV[3], ARGV[2], clock(), redis.call)(fence, #KEYS)
