-- mutex_release_many.lua: delete many locks, each only if it is still ours.
-- KEYS[i]  lock key   ARGV[1] DELIFEQ or DELEX where the server has it   ARGV[1+i] a lock's holder token
-- Returns how many there are if all were ours, as nearly always. Otherwise returns for each 1 ours, 0 not ours, or its
-- error, such as that of a key of another type.
local states = {}
local ours = 0
for i = 1, #KEYS do
  local key, token = KEYS[i], ARGV[1 + i]
  local state
  if ARGV[1] == 'DELIFEQ' then
    state = redis.pcall('DELIFEQ', key, token)
  elseif ARGV[1] == 'DELEX' then
    state = redis.pcall('DELEX', key, 'IFEQ', token)
  else
    state = redis.pcall('GET', key)
    if type(state) ~= 'table' then state = state == token and redis.call('DEL', key) or 0 end
  end
  states[i] = state
  if state == 1 then ours = ours + 1 end
end
return ours == #KEYS and ours or states
