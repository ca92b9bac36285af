-- locks_context.lua: read the state of many names besides their lock keys: readers, waiters, permits, latches.
-- KEYS     for each name: lock key, readers, a waiting writer's reservation, queue, expiry of the queue entries, ticket
--          register, a semaphore's permits, the reservation of a waiter for many slots, a latch's ids, its state
-- ARGV[1]  the value of a lock key while there are readers   ARGV[2] maximum readers and waiters to return
-- Returns for each {{reader, ms left...}, {waiting writer or nil, waiter for many slots or nil}, {waiter...} in order,
-- 1 if it has a ticket register (a fair lock), permits or nil, {count, counted, 1 if open, ms left} of a latch or nil};
-- nil instead for a name with a key that the library cannot have stored.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local last = ARGV[2] - 1
local found = {}

-- Our own tokens are shorter.
local function cut(value) return value and string.sub(value, 1, 1024) end

local function inspect(i)
  local readers, queue = {}, {}
  if redis.pcall('GETRANGE', KEYS[i], 0, #ARGV[1]) == ARGV[1] then
    local stored = redis.call('ZRANGE', KEYS[i + 1], 0, last, 'WITHSCORES')
    for j = 1, #stored, 2 do
      if stored[j + 1] - now > 0 then
        readers[#readers + 1] = cut(stored[j])
        readers[#readers + 1] = stored[j + 1] - now
      end
    end
  end
  for _, waiter in ipairs(redis.call('ZRANGE', KEYS[i + 3], 0, last)) do
    if tonumber(redis.call('HGET', KEYS[i + 4], waiter) or 0) > now then queue[#queue + 1] = cut(waiter) end
  end
  local permits = redis.call('GET', KEYS[i + 6])
  local count, latch = redis.call('HGET', KEYS[i + 9], 'count'), false
  if count then
    if not tonumber(count) then error('no number') end
    local open = redis.call('HEXISTS', KEYS[i + 9], 'open')
    latch = {tonumber(count), redis.call('SCARD', KEYS[i + 8]), open, redis.call('PTTL', KEYS[i + 9])}
  end
  return {
    readers, {cut(redis.call('GET', KEYS[i + 2])), cut(redis.call('GET', KEYS[i + 7]))}, queue,
    redis.call('EXISTS', KEYS[i + 5]),
    -- A number that an operator has set is followed by a token.
    permits and tonumber(string.match(permits, '^%d+')) or false, latch,
  }
end

for i = 1, #KEYS, 10 do
  local good, context = pcall(inspect, i)
  found[#found + 1] = good and context
end
return found
