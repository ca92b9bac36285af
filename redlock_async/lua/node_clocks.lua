-- node_clocks.lua: read this node's clock and its notes of the other nodes' clocks, and update the notes.
-- KEYS[1]  the notes, a hash: <id of another node> = "<us on this clock> <us by which the other was ahead> <error in us>"
-- ARGV     for each node to note: its id, and the note
-- Returns {node time in us, {id, note...}}.
local time = redis.call('TIME')
-- pcall: a node that refuses writes (OOM, MISCONF) still reports its clock.
for i = 1, #ARGV, 2 do redis.pcall('HSET', KEYS[1], ARGV[i], ARGV[i + 1]) end
local notes = redis.call('HGETALL', KEYS[1])
-- The notes of ids that are gone are useless. Those that are in use are soon written again.
if #ARGV > 0 and #notes > 200 then redis.pcall('DEL', KEYS[1]) end
return {time[1] * 1000000 + time[2], notes}
