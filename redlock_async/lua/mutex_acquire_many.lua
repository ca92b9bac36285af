-- mutex_acquire_many.lua: acquire many locks on one name each, every one for itself, and raise their fence registers.
-- KEYS[2i-1]  lock key   KEYS[2i] its fence register
-- ARGV[1]     ttl in ms  ARGV[2] the caller's wall clock in µs   ARGV[2+i] a lock's holder token
-- Returns -now if every lock was granted with the token that was proposed, as nearly always. Otherwise returns for each
-- what mutex_acquire.lua would, or its error, which is that lock's alone.
-- include: limits.lua
local others = {}
for i = 1, #KEYS / 2 do
  local key = KEYS[2 * i - 1]
  local reply = redis.pcall('SET', key, ARGV[2 + i], 'NX', 'PX', ARGV[1])
  if not reply then
    -- Reading the key arms client tracking: the caller is notified when the lock is freed.
    reply = redis.pcall('GETRANGE', key, 0, 299)
    if type(reply) == 'string' then reply = {1, reply, redis.call('PTTL', key)} end
  end
  if not reply.ok then others[i] = reply end
end
local now = clock() -- behind the writes, so that a step of the clock before them is seen
local raise = raising(ARGV[2], ARGV[1], now, redis.pcall)
local alike = true
local replies = {}
for i = 1, #KEYS / 2 do
  local reply = others[i] or raise(2 * i, 2 * i)
  replies[i] = reply
  alike = alike and reply == -now
end
return alike and -now or replies
