-- fair_ticket.lua: the next ticket of this node. The largest of a majority's is the caller's; it stores that with its place.
-- KEYS[1] ticket register   KEYS[2] queue: waiters by ticket   ARGV[1] ms the register is kept
-- Returns the ticket, larger than every one that was taken here, and than those of all whose places are kept here. A
-- register that is missing, perhaps lost with the node's data, starts at the time in µs, because tickets are taken more
-- slowly than that: nobody gets ahead of those who waited before.
local time = redis.call('TIME')
local ticket
local stored = redis.call('GETSET', KEYS[1], '0')
if stored then
  ticket = stored + 1
else
  local last = redis.call('ZRANGE', KEYS[2], -1, -1, 'WITHSCORES')[2]
  ticket = math.max(time[1] * 1000000 + time[2], last and last + 1 or 0)
end
redis.call('SET', KEYS[1], string.format('%.0f', ticket), 'PX', ARGV[1])
return ticket
