-- semaphore_acquire.lua: acquire all wanted slots or none, and raise their fence register, or return the free slots.
-- KEYS[1]  the number of permits in use   KEYS[2] the reservation of a waiter for several slots   then the slots, and
--          their fence register (absent: not fenced)
-- ARGV[1]  permits   ARGV[2] how many of KEYS are slots: permits, or more
-- ARGV[3]  holder token   ARGV[4] ttl in ms   ARGV[5] the caller's wall clock in µs
-- ARGV[6]  the caller's own reservation, or empty   ARGV[7] ms to leave it for after a refusal, or 0 for none
-- ARGV[8..]  the wanted slots, from 0
-- Returns -now or {fence, now} if granted, as limits.lua explains (always -now when not fenced).
-- Otherwise returns {holder token of a wanted slot, ms until enough slots have expired (-1: never), the free slots...};
-- {slots, ms, reservation} if a waiter for that many slots goes first; {number in use} if that is larger than the
-- number of slots given: the caller must then pass that many, to check whether one is held; and an error PERMITS if a
-- slot is held under another number, or an operator has set another number.
-- include: limits.lua
local permits, slots, wanted = tonumber(ARGV[1]), tonumber(ARGV[2]), #ARGV - 7
local bound = redis.call('GET', KEYS[1])
local set = false
if bound and bound ~= ARGV[1] then
  -- A number that an operator has set contains a colon, and stays.
  set = string.match(string.sub(bound, 1, 20), '^(%d+):')
  if set and set ~= ARGV[1] then
    return redis.error_reply('PERMITS it was set to permits=' .. set .. ', but permits=' .. permits
      .. ' was requested. All clients must pass the same number')
  end
  if not set then
    for i = 3, slots + 2 do
      if redis.call('EXISTS', KEYS[i]) == 1 then
        local other = string.sub(bound, 1, 20)
        return redis.error_reply('PERMITS it is already in use with permits=' .. other .. ', but permits=' .. permits
          .. ' was requested. All clients must agree; `redlock-async permits` changes the number')
      end
    end
    -- The maximum is 1000; another value was not written by this library.
    local others = math.min(tonumber(bound) or 0, 1000)
    if others > slots then return {others} end
  end
end
local reservation = redis.call('GET', KEYS[2])
local ahead = reservation and tonumber(string.match(reservation, '^%d+')) or 0
-- Among waiters for equally many slots only one goes first, otherwise waiters for fewer would wait until none of them
-- is left. It must be the same one on all nodes, or two could each be blocked by the reservation of the other.
if ahead > wanted or (ahead == wanted and (ARGV[6] == '' or reservation < ARGV[6])) then
  return {ahead, redis.call('PTTL', KEYS[2]), string.sub(reservation, 1, 300)}
end
-- Reading a slot arms client tracking: the caller is notified when it is freed.
local holder
for i = 8, #ARGV do
  if redis.call('EXISTS', KEYS[ARGV[i] + 3]) == 1 then
    -- At most 300 bytes, as in mutex_acquire.lua.
    holder = redis.call('GETRANGE', KEYS[ARGV[i] + 3], 0, 299)
    break
  end
end
if not holder then
  for i = 8, #ARGV do redis.call('SET', KEYS[ARGV[i] + 3], ARGV[3], 'PX', ARGV[4]) end
else
  -- The caller leaves it once per second at most, because each change of it wakes the waiters behind it.
  if ARGV[7] ~= '0' and (ahead < wanted or reservation == ARGV[6]) then
    redis.call('SET', KEYS[2], ARGV[6], 'PX', ARGV[7])
    -- Our own write has disarmed client tracking, which other waiters of the same process need.
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
  if ahead == wanted and reservation ~= ARGV[6] then
    return {ahead, redis.call('PTTL', KEYS[2]), string.sub(reservation, 1, 300)}
  end
  table.sort(times)
  answer[2] = times[math.max(wanted + 2 - #answer, 1)] or -1
  return answer
end
-- It is kept for twice the ttl, so that it is written once per ttl and not by every holder.
if not set and (bound ~= ARGV[1] or redis.call('PTTL', KEYS[1]) < tonumber(ARGV[4])) then
  redis.call('SET', KEYS[1], ARGV[1], 'PX', 2 * ARGV[4])
end
local register = slots + 3
if #KEYS < register then return -clock() end
return raise(register, ARGV[5], ARGV[4])
