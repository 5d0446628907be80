-- Records of steps and turns (JSON in hashes) and the session's counters. Each record is read once in a transaction
-- and written at its end.
local records = {}

-- The record of a step (`steps`) or a turn (`turns`); nil if there is none.
function records.load(tx, room, address)
  local kept = tx.records[room][address]
  if kept == nil then
    local text = redis.call('HGET', tx.keys[room], address)
    kept = {record = text and cjson.decode(text) or nil, dirty = false}
    tx.records[room][address] = kept
  end
  return kept.record
end

-- Sets the record of an address, to be written by `records.write`.
function records.store(tx, room, address, record)
  tx.records[room][address] = {record = record, dirty = true}
  return record
end

-- Marks a loaded record as changed.
function records.save(tx, room, address)
  tx.records[room][address].dirty = true
end

local MANY = 2000   -- fields and values of one call: Lua's stack limits how many `unpack` may return

-- Writes the changed records of one kind.
local function write_kind(tx, room)
  local changed = {}
  for address, one in pairs(tx.records[room]) do
    if one.dirty then
      changed[#changed + 1] = address
      changed[#changed + 1] = cjson.encode(one.record)
    end
  end
  for from = 1, #changed, MANY do
    redis.call('HSET', tx.keys[room], unpack(changed, from, math.min(from + MANY - 1, #changed)))
  end
end

-- Writes all changed records.
function records.write(tx)
  write_kind(tx, 'steps')
  write_kind(tx, 'turns')
end

-- Adds to a counter of the session, and returns its new value.
function records.count(tx, name, by)
  return redis.call('HINCRBY', tx.keys.session, name, by or 1)
end

return records
