-- node_record.lua: read what a node has recorded about itself and the others, and update it.
-- KEYS[1]  the record, a hash: id, server, ttl, origin, founding, grace, stepped, replicated, charter, chartered, and node:<id> = "<us> <standing>";
--          of a shard of a cluster also place, slots, arrived and left. The key of a shard's record ends with the tag of one of its slots
-- ARGV[1]  read: change nothing; copied: its data is another node's; moved: it has exchanged its address with another node;
--          kept: the moves in ARGV[8] came from shards that had all data of these slots; or the origin to record: empty (keep), founding, founded, joined
-- ARGV[2]  the server's run id, or empty   ARGV[3] 1 if the server has or had replicas, or was one
-- ARGV[4]  1 if the server loads every write after a restart   ARGV[5] grace in ms after a promotion
-- ARGV[6]  random digits for a new id   ARGV[7] the caller's longest ttl in ms   ARGV[8] ids to found the cluster with, or the copied id, or moves
-- ARGV[9]  the charter to record unless there is a newer one, or empty: its epoch, then the quorum and labels of each set
-- ARGV[10] the id that is no longer valid because the node's clock was stepped, and by how many ms; or empty
-- ARGV[11..] ids of nodes, each followed by its standing: '-' known, 'f' founder, 'a' admitted
-- Returns {node time in us, id, longest ttl in ms, origin, founding, grace in ms, charter, step in ms or empty, the slots it owns, those that arrived and left, id, since when it is known in us, standing...}.
-- include: slots.lua
local key = KEYS[1]
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local function get(field) return redis.call('HGET', key, field) or '' end
-- pcall: a node that refuses writes (OOM, MISCONF) can still report what it has recorded.
local function set(...) redis.pcall('HSET', key, ...) end

if ARGV[1] ~= 'read' then
  local id, server = get('id'), get('server')
  local own, tag = string.match(key, '^(.*)node(:?.-)$')
  local clocks = own .. 'clocks' .. tag
  local place = tag ~= '' and redis.call('CLUSTER', 'MYID') or ''
  local replicated = ARGV[3] == '1' or get('replicated') == '1'
  local copied = ARGV[1] == 'copied' and id == ARGV[8]
  local another = ARGV[2] ~= '' and server ~= '' and server ~= ARGV[2]
  local elsewhere = place ~= get('place') -- a shard's primary is another server, or the slot came with the record of another shard
  if id == '' then
    set('id', ARGV[6] .. '-' .. string.format('%.0f', now), 'server', ARGV[2], 'origin', '',
      'grace', tag ~= '' and replicated and ARGV[5] or 0)
  -- Another process has all data if it is the same server and loads every write. Otherwise some may be missing.
  elseif copied or elsewhere or another and (replicated or ARGV[4] ~= '1') then
    set('id', ARGV[6] .. '-' .. string.format('%.0f', now), 'origin', '', 'founding', '',
      'grace', (replicated or elsewhere) and ARGV[5] or 0, 'stepped', '')
    redis.pcall('DEL', clocks)
    if copied then set('charter', '') end -- it says that this is the other node
    -- The fence registers may be old. Without them, tokens start again from the node's clock, above all earlier ones.
    -- Their names end in the tag of a slot: see tag_of in keys.py.
    for a = 64, 67 do
      for b = 64, 79 do
        local registers = {}
        for c = 64, 79 do
          for d = 64, 79 do registers[#registers + 1] = own .. 'fence:{' .. string.char(a, b, c, d) .. '}' end
        end
        if tag == '' then redis.pcall('DEL', unpack(registers)) end
        -- A shard has some of them, each in another slot.
        for i = 1, tag ~= '' and #registers or 0 do redis.pcall('DEL', registers[i]) end
      end
    end
  elseif string.match(ARGV[10], '^(.-) ') == id then
    -- A clock that is stepped may end leases early: the node votes when it may have lost its data until now.
    set('id', ARGV[6] .. '-' .. string.format('%.0f', now), 'origin', '', 'founding', '',
      'stepped', string.match(ARGV[10], ' (.*)$'))
    redis.pcall('DEL', clocks)
  end
  if tag ~= '' then
    local slots, before, arrived, left = owned(place), members(get('slots')), get('arrived'), get('left')
    if get('id') ~= id then before, arrived, left = slots, '', '' end -- what its data may lack is younger than its id
    local gone = without(before, slots)
    -- What another shard has lost of slots that came is not known here: the node does not vote for them yet.
    arrived = moves(arrived, function(us)
      return members(ARGV[1] == 'kept' and string.match(ARGV[8], us .. ':([%d,-]+)') or '')
    end)
    local whole = without(gone, members((string.gsub(arrived, '%d+:', ''))))
    arrived = moves(arrived, function() return gone end)
    arrived = moved(arrived, now, without(slots, before))
    left = moved(moves(left, function() return slots end), now, whole)
    for field, value in pairs({place = place, slots = ranges(slots), arrived = arrived, left = left}) do
      if get(field) ~= value then set(field, value) end -- other clients are notified of every change
    end
  end
  if ARGV[2] ~= '' and get('server') ~= ARGV[2] then set('server', ARGV[2]) end
  if ARGV[3] == '1' and get('replicated') == '' then set('replicated', 1) end
  if tonumber(ARGV[7]) > (tonumber(get('ttl')) or 0) then set('ttl', ARGV[7]) end
  local origin = get('origin')
  if ARGV[1] == 'founding' and (origin == '' or origin == 'founding') then
    set('origin', 'founding', 'founding', ARGV[8])
  elseif ARGV[1] == 'founded' and origin == 'founding' and get('founding') == ARGV[8] then
    set('origin', 'founded')
  elseif ARGV[1] == 'joined' and origin ~= 'founded' then
    set('origin', 'joined')
  end
  local refused = ARGV[1] == 'founded' and (get('origin') ~= 'founded' or get('founding') ~= ARGV[8])
  if ARGV[9] ~= '' and not refused then
    local epoch = tonumber(string.match(get('charter'), '^%d+')) or -1
    local given = tonumber(string.match(ARGV[9], '^%d+'))
    if given > epoch then
      set('charter', ARGV[9], 'chartered', string.format('%.0f', now))
    elseif ARGV[1] == 'moved' and given == epoch then
      set('charter', ARGV[9])
    end
  end
  for i = 11, #ARGV, 2 do
    local field, standing = 'node:' .. ARGV[i], refused and '-' or ARGV[i + 1]
    local since, before = string.match(get(field), '^(%d+) (.)$')
    if not since then
      set(field, string.format('%.0f', now) .. ' ' .. standing)
    elseif standing == 'a' and before ~= 'a' or standing == 'f' and before == '-' then
      set(field, since .. ' ' .. standing)
    end
  end
end

local fields = redis.call('HGETALL', key)
local record, others = {}, {}
for i = 1, #fields, 2 do
  local id = string.match(fields[i], '^node:(.+)$')
  local since, standing = string.match(fields[i + 1], '^(%d+) (.)$')
  if id and since then
    others[#others + 1] = {id = id, since = tonumber(since), standing = standing}
  else
    record[fields[i]] = fields[i + 1]
  end
end
-- An id is forgotten long after its data is gone: the oldest of more than a hundred.
if #others > 100 and ARGV[1] ~= 'read' then
  table.sort(others, function(one, other) return one.since > other.since end)
  local current = {}
  for i = 11, #ARGV, 2 do current[ARGV[i]] = true end
  for i = #others, 51, -1 do
    if not current[others[i].id] then
      redis.pcall('HDEL', key, 'node:' .. others[i].id)
      table.remove(others, i)
    end
  end
end
local reply = {
  now, record.id or '', tonumber(record.ttl) or 0, record.origin or '', record.founding or '', tonumber(record.grace) or 0,
  record.charter or '', record.stepped or '', record.slots or '', record.arrived or '', record.left or '',
}
for _, other in ipairs(others) do
  reply[#reply + 1] = other.id
  reply[#reply + 1] = other.since
  reply[#reply + 1] = other.standing
end
return reply
