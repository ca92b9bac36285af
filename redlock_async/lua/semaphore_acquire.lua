-- semaphore_acquire.lua: take slots, all those wanted or none, and raise their fence registers, or tell which are free.
-- KEYS[1]  the number of permits in use   KEYS[2] the hint of one who waits for many slots   then the slots, and one
--          fence register for each wanted one (none of them: not fenced)
-- ARGV[1]  permits   ARGV[2] how many of KEYS are slots: permits, or more
-- ARGV[3]  holder token   ARGV[4] ttl in ms   ARGV[5] fencing candidate: the caller's wall clock in µs
-- ARGV[6]  the caller's own hint, or empty: it has none   ARGV[7] ms to leave it for if it is refused, 0: not
-- ARGV[8..]  the wanted slots, from 0
-- Returns the fence (1 when not fenced) if granted, else {holder token of a wanted slot, ms until so many have expired that
-- there are enough (-1: never), the free slots...}; {slots, ms, hint} when somebody waits for so many and comes first;
-- {number in use} where that is larger than the slots given, which must then be given, to see whether any of them is held;
-- and an error PERMITS when one is held under another number, or an operator has set another number.
local permits, slots, wanted = tonumber(ARGV[1]), tonumber(ARGV[2]), #ARGV - 7
local bound = redis.call('GET', KEYS[1])
local set = false
if bound and bound ~= ARGV[1] then
  -- What an operator has set has a colon, and stays.
  set = string.match(bound, '^(%d+):')
  if set and set ~= ARGV[1] then
    return redis.error_reply('PERMITS it was set to permits=' .. set .. ', and this was to be permits=' .. permits)
  end
  if not set then
    for i = 3, slots + 2 do
      if redis.call('EXISTS', KEYS[i]) == 1 then
        return redis.error_reply('PERMITS it is in use with permits=' .. bound .. ', and this was to be permits=' .. permits)
      end
    end
    -- 1000 is the most there can be; what is no such number was not written by us.
    local others = math.min(tonumber(bound) or 0, 1000)
    if others > slots then return {others} end
  end
end
local hint = redis.call('GET', KEYS[2])
local ahead = hint and tonumber(string.match(hint, '^%d+')) or 0
-- Of those who want as many only one may go before the rest, or who wants fewer would wait for as long as there are any;
-- and the same one on all nodes, or each could be held back by the hint of the other.
if ahead > wanted or (ahead == wanted and (ARGV[6] == '' or hint < ARGV[6])) then
  return {ahead, redis.call('PTTL', KEYS[2]), hint}
end
-- Reading a slot arms client tracking on it: the caller is told when it is freed.
local holder
for i = 8, #ARGV do
  holder = redis.call('GET', KEYS[ARGV[i] + 3])
  if holder then break end
end
if not holder then
  for i = 8, #ARGV do redis.call('SET', KEYS[ARGV[i] + 3], ARGV[3], 'PX', ARGV[4]) end
else
  -- Once a second at most: each time it changes, those that it holds back are told.
  if ARGV[7] ~= '0' and (ahead < wanted or hint == ARGV[6]) then
    redis.call('SET', KEYS[2], ARGV[6], 'PX', ARGV[7])
    -- For others of the same process: our own write disarmed client tracking on it.
    redis.call('EXISTS', KEYS[2])
  end
  local answer, times = {holder, -1}, {}
  for i = 3, permits + 2 do
    local left = redis.call('PTTL', KEYS[i])
    if left == -2 then
      answer[#answer + 1] = i - 3
    elseif left >= 0 then
      times[#times + 1] = left
    end
  end
  if ahead == wanted and hint ~= ARGV[6] then return {ahead, redis.call('PTTL', KEYS[2]), hint} end
  table.sort(times)
  answer[2] = times[math.max(wanted + 2 - #answer, 1)] or -1
  return answer
end
-- Twice the ttl, so that it is written once a ttl, and not by every holder.
if not set and (bound ~= ARGV[1] or redis.call('PTTL', KEYS[1]) < tonumber(ARGV[4])) then
  redis.call('SET', KEYS[1], ARGV[1], 'PX', 2 * ARGV[4])
end
local register = slots + 3
if #KEYS < register then return 1 end
-- Clamped, and read with GETSET, for the reasons given in mutex_acquire.lua.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local fence = math.min(tonumber(ARGV[5]), now + 1000000)
for i = register, #KEYS do
  local stored = redis.call('GETSET', KEYS[i], string.format('%.0f', fence))
  fence = math.max(fence, stored and tonumber(stored) + 1 or now - 1000000)
end
for i = register, #KEYS do redis.call('SET', KEYS[i], string.format('%.0f', fence)) end
return fence
