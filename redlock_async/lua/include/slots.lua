-- slots.lua: sets of a cluster's slots, as text: '0-5460,5462-5462'; and moves of slots, with their time: 'us:slots us:slots'.
local function members(text)
  local found = {}
  for first, last in string.gmatch(text, '(%d+)-(%d+)') do
    for slot = tonumber(first), tonumber(last) do found[slot] = true end
  end
  return found
end

local function ranges(found)
  local text, first = '', nil
  for slot = 0, 16384 do
    if first and not found[slot] then
      text = text .. ',' .. first .. '-' .. slot - 1
      first = nil
    elseif found[slot] and not first then
      first = slot
    end
  end
  return string.sub(text, 2)
end

-- Returns the slots of one set that are not in another one.
local function without(one, other)
  local found = {}
  for slot in pairs(one) do found[slot] = not other[slot] or nil end
  return found
end

-- Returns the moves without the slots that `drop` returns for the time of a move.
local function moves(text, drop)
  local result = ''
  for us, slots in string.gmatch(text, '(%d+):([%d,-]+)') do
    local rest = ranges(without(members(slots), drop(us)))
    if rest ~= '' then result = result .. ' ' .. us .. ':' .. rest end
  end
  return string.sub(result, 2)
end

-- Returns the moves and one more, of these slots at that time.
local function moved(text, us, slots)
  local added = ranges(slots)
  if added == '' then return text end
  return text .. (text == '' and '' or ' ') .. string.format('%.0f', us) .. ':' .. added
end

-- Returns the slots that this shard owns, by its id in the cluster.
local function owned(id)
  local found = {}
  for _, range in ipairs(redis.call('CLUSTER', 'SLOTS')) do
    for slot = range[1], range[3][3] == id and range[2] or -1 do found[slot] = true end
  end
  return found
end
