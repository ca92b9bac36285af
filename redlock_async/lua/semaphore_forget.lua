-- semaphore_forget.lua: turn a number of permits that an operator has set into one that goes when it is not used.
-- KEYS[1]  the number of permits; the slots are called that, a colon and a number, and none is held beyond the number
-- ARGV[1]  ms to keep it for   ARGV[2..] what operators have set, as far as the caller knows: nothing else is forgotten
-- Returns 1 if one of those was stored, else 0.
local bound = redis.call('GET', KEYS[1])
for i = 2, #ARGV do
  if bound == ARGV[i] then
    local permits = string.match(bound, '^%d+')
    -- At least for as long as slots are held under it, or another number could be used beside it: those that nobody
    -- renews any more (hold_at_least) may be held for longer than any ttl.
    local keep = tonumber(ARGV[1])
    -- 1000 is the most there can be.
    for slot = 0, math.min(tonumber(permits), 1000) - 1 do
      keep = math.max(keep, redis.call('PTTL', KEYS[1] .. ':' .. slot))
    end
    redis.call('SET', KEYS[1], permits, 'PX', keep)
    return 1
  end
end
return 0
