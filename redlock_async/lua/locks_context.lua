-- locks_context.lua: what else this node knows of these names: readers, waiters, permits, latches.
-- KEYS     for each: lock key, readers, waiting writer's hint, queue, until when each place in it is kept, ticket register,
--          a semaphore's number of permits, the hint of one who waits for many slots, a latch's ids, its state
-- ARGV[1]  what a lock key holds while there are readers   ARGV[2] how many readers and waiters to tell of at most
-- Returns for each {{reader, ms left...}, {waiting writer or nil, waiter for many slots or nil}, {waiter...} in their order,
-- 1 if it has been locked fairly, permits or nil, {count, counted, 1 if open, ms kept} of a latch or nil}.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local last = ARGV[2] - 1
local found = {}
for i = 1, #KEYS, 10 do
  local readers, queue = {}, {}
  if redis.pcall('GETRANGE', KEYS[i], 0, #ARGV[1]) == ARGV[1] then
    local stored = redis.call('ZRANGE', KEYS[i + 1], 0, last, 'WITHSCORES')
    for j = 1, #stored, 2 do
      if stored[j + 1] - now > 0 then
        readers[#readers + 1] = stored[j]
        readers[#readers + 1] = stored[j + 1] - now
      end
    end
  end
  for _, waiter in ipairs(redis.call('ZRANGE', KEYS[i + 3], 0, last)) do
    if tonumber(redis.call('HGET', KEYS[i + 4], waiter) or 0) > now then queue[#queue + 1] = waiter end
  end
  local permits = redis.call('GET', KEYS[i + 6])
  local count, latch = redis.call('HGET', KEYS[i + 9], 'count'), false
  if count then
    local open = redis.call('HEXISTS', KEYS[i + 9], 'open')
    latch = {tonumber(count), redis.call('SCARD', KEYS[i + 8]), open, redis.call('PTTL', KEYS[i + 9])}
  end
  found[#found + 1] = {
    readers, {redis.call('GET', KEYS[i + 2]), redis.call('GET', KEYS[i + 7])}, queue, redis.call('EXISTS', KEYS[i + 5]),
    -- An operator's change has a token behind the number.
    permits and tonumber(string.match(permits, '^%d+')) or false, latch,
  }
end
return found
