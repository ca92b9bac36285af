-- limits.lua: raise fence registers, and reject numbers that would use up their range.
-- Every script that grants a fenced lock includes this file, so the clamp in `raising` exists only once.
-- Lua's numbers are exact up to 2^53, and a register never expires: after a larger number no later token could be
-- larger. So a number may be at most 143 years (2^52 µs and a year) ahead of this node's clock. Clients accept numbers
-- up to 2^52 µs ahead of the nodes' clocks, so every number that they accept is accepted here too. The limit grows with
-- time faster than registers count.
local function clock()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end

local function out_of_range(number, now, register)
  if tonumber(number) > 0 and tonumber(number) <= math.min(now + 4535157227370496, 9007199254740991) then return end
  local what = register and number .. ' in ' .. register or number
  return redis.error_reply('LIMIT ' .. what .. ' is out of range: a clock or a reply was wrong')
end

-- Returns a function that raises the registers KEYS[first...last] and returns the reply to a grant, or an error reply.
-- `wall` is the caller's clock in µs, `ttl` is in ms, `now` is clock(), `call` is redis.call or redis.pcall. A grant says what this node's clock shows,
-- because a clock that was stepped may have ended another client's lease early: the reply is -now if the token is
-- `wall`, as nearly always, else {token, now}.
-- While clocks differ by less than an eighth of the ttl, and by at most a second, the token is the caller's time on all
-- nodes, and one round trip is enough. The token is never further ahead of the node's clock than that, so that a clock
-- that is years ahead does not use up the range. If a register is missing, perhaps lost with the node's data, the token
-- is never further behind either. So it is above all tokens from before the loss: since then the node was quarantined
-- for at least one ttl, and the two deviations are at most a quarter of it.
local function raising(wall, ttl, now, call)
  local most = math.min(ttl * 125, 1000000)
  local asked = math.min(tonumber(wall), now + most)
  local text = string.format('%.0f', asked)
  local grant = asked == tonumber(wall) and -now or {asked, now}
  return function(first, last)
    if now >= 7258118400000000 then
      return redis.error_reply('CLOCK the clock of this node is beyond the year 2200. Set it')
    end
    local fence = asked
    -- GETSET, not GET, because a write is never tracked: registers cause no invalidations.
    for i = first, last do
      local stored = call('GETSET', KEYS[i], fence == asked and text or string.format('%.0f', fence))
      if type(stored) == 'table' then return stored end
      local above = stored and (tonumber(stored) or -1) + 1
      local rejected = above and out_of_range(above, now, KEYS[i])
      if rejected then
        redis.call('SET', KEYS[i], stored)
        for j = first, i - 1 do redis.call('SET', KEYS[j], string.format('%.0f', fence)) end
        return rejected
      end
      fence = math.max(fence, above or now - most)
    end
    if fence == asked then return grant end -- GETSET has stored it already
    for i = first, last do redis.call('SET', KEYS[i], string.format('%.0f', fence)) end
    return {fence, now}
  end
end

-- Raises a register to at least that token; a missing register is also raised to at least the node's clock.
local function raise_to(register, fence)
  local stored = redis.call('GETSET', register, fence) or string.format('%.0f', clock())
  if tonumber(stored) > tonumber(fence) then redis.call('SET', register, stored) end
end
