-- fair_ticket.lua: return the next ticket of this node; the caller uses the largest of a majority's replies.
-- KEYS[1] ticket register   KEYS[2] queue: waiters by ticket   ARGV[1] ms to keep the register
-- Returns a ticket larger than every one that was drawn here, and than those of all valid queue entries. A missing
-- register, perhaps lost with the node's data, starts at the time in µs: tickets are drawn more slowly than one per µs,
-- so no client gets ahead of earlier waiters.
-- include: limits.lua
local now, ticket = clock()
local stored = redis.call('GETSET', KEYS[1], '0')
if stored then
  ticket = stored + 1
else
  local last = redis.call('ZRANGE', KEYS[2], -1, -1, 'WITHSCORES')[2]
  ticket = math.max(now, last and last + 1 or 0)
end
redis.call('SET', KEYS[1], string.format('%.0f', ticket), 'PX', ARGV[1])
local rejected = out_of_range(ticket, now)
-- Without the register the next ticket follows the last queue entry, so a wrong number is gone when that entry ends.
if rejected then redis.call('DEL', KEYS[1]) end
return rejected or ticket
