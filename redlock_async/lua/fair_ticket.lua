-- fair_ticket.lua: the next ticket of this node. The largest of a majority's is the caller's; it stores that with its place.
-- KEYS[1] ticket register   ARGV[1] ms it is kept
-- Returns the ticket. A register that is missing, perhaps lost with the node's data, starts at the time in µs, because
-- tickets are taken more slowly than that: nobody gets ahead of those who waited before.
local time = redis.call('TIME')
local stored = redis.call('GETSET', KEYS[1], '0')
local ticket = stored and tonumber(stored) + 1 or time[1] * 1000000 + time[2]
redis.call('SET', KEYS[1], string.format('%.0f', ticket), 'PX', ARGV[1])
return ticket
