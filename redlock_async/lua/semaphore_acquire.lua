-- semaphore_acquire.lua: take one slot of a semaphore and raise its fence register, or tell which slots are free.
-- KEYS[1]  the number of permits in use   then the slots, and the fence register of the wanted one (none: not fenced)
-- ARGV[1]  permits   ARGV[2] how many of KEYS are slots: permits, or more   ARGV[3] wanted slot, from 0
-- ARGV[4]  holder token   ARGV[5] ttl in ms
-- ARGV[6]  fencing candidate: the caller's wall clock in µs (only when fenced)
-- Returns the fence (1 when not fenced) if granted, else {holder token of the wanted slot, ms until the first of those
-- taken expires (-1: none does), the free slots...}; {number in use} where that is larger than the slots given, which must
-- then be given, to see whether any of them is held; and an error PERMITS when one is held under another number.
local permits, slots = tonumber(ARGV[1]), tonumber(ARGV[2])
local bound = redis.call('GET', KEYS[1])
if bound and bound ~= ARGV[1] then
  for i = 2, slots + 1 do
    if redis.call('EXISTS', KEYS[i]) == 1 then
      return redis.error_reply('PERMITS it is in use with permits=' .. bound .. ', and this was to be permits=' .. permits)
    end
  end
  -- 1000 is the most there can be; what is no such number was not written by us.
  local others = math.min(tonumber(bound) or 0, 1000)
  if others > slots then return {others} end
end
local wanted = ARGV[3] + 2
if not redis.call('SET', KEYS[wanted], ARGV[4], 'NX', 'PX', ARGV[5]) then
  -- Reading a slot arms client tracking on it: the caller is told when it is freed.
  local answer = {redis.call('GET', KEYS[wanted]), -1}
  for i = 2, permits + 1 do
    local left = redis.call('PTTL', KEYS[i])
    if left == -2 then
      answer[#answer + 1] = i - 2
    elseif left >= 0 and (answer[2] < 0 or left < answer[2]) then
      answer[2] = left
    end
  end
  return answer
end
-- Twice the ttl, so that it is written once a ttl, and not by every holder.
if bound ~= ARGV[1] or redis.call('PTTL', KEYS[1]) < tonumber(ARGV[5]) then
  redis.call('SET', KEYS[1], ARGV[1], 'PX', 2 * ARGV[5])
end
local register = slots + 2
if #KEYS < register then return 1 end
-- Clamped, and read with GETSET, for the reasons given in mutex_acquire.lua.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local fence = math.min(tonumber(ARGV[6]), now + 1000000)
local stored = redis.call('GETSET', KEYS[register], string.format('%.0f', fence))
fence = math.max(fence, stored and tonumber(stored) + 1 or now - 1000000)
redis.call('SET', KEYS[register], string.format('%.0f', fence))
return fence
