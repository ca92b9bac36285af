-- mutex_force.lua: take a lock from its holder, whoever that is.
-- When all nodes have done so, mutex_release.lua frees it. If it were deleted at once, a holder that misses its key on
-- a few nodes would set it again there, before the other nodes have deleted it.
-- KEYS[1]  lock key   KEYS[2] the key that notifies readers of a force-release
-- ARGV[1]  the value that the lock has until it is freed, or for ARGV[2] ms
-- Returns 1 if it was held. A key of another type is an error (WRONGTYPE) and stays.
-- The record of a node is a hash: `bench` and `doctor` delete those of their own namespaces. That of a shard has a tag.
local own, tag = string.match(KEYS[1], '^(.*redlock%-async:)node(:?{?[@-O]-}?)$')
if own then
  redis.call('DEL', own .. 'clocks' .. tag)
  return redis.call('DEL', KEYS[1])
end
if not redis.call('GET', KEYS[1]) then return 0 end
-- Each SET follows a DEL so that it works at OOM.
redis.call('DEL', KEYS[1])
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
-- Readers do not track the lock key, which changes with every reader.
redis.call('SET', KEYS[2], '', 'PX', 1000)
redis.call('DEL', KEYS[2])
return 1
