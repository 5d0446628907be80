-- The inbox: messages to the session's turns. A turn gets those that are unread when its step is claimed, and
-- acknowledges them when its outcome is recorded; an attempt that is lost leaves them to the next one.
--- @requires events, changes, programs, records, texts, turn_records
local inbox = {}

inbox.BYTES_MAX = 16384          -- of a text, and of the data of a message
local MESSAGES_MAX = 1000        -- that a session keeps
local DROPPED_AT_ONCE = 100      -- acknowledged messages that make room
local TURN_MESSAGES, TURN_BYTES = 100, 65536   -- that one turn gets; the others wait for the next
local TAKES_KEPT = 8             -- the last calls that took messages: a repeated call gets the same ones

-- Sessions that never run again, and the kinds of messages that they still accept.
local FINAL = {completed = true, exited = true, aborted = true}
local AFTER_END = {['end'] = true}

-- A member of `unread`: the id in 12 digits, a sign (`!` if the message escalates), and the step that has got it.
local function member_of(id, sign, owner) return string.format('%012d', id) .. sign .. owner end

local function split(member) return tonumber(member:sub(1, 12)), member:sub(13, 13), member:sub(14) end

local function has_unread(tx)
  return tx.session.unread ~= '' and tx.session.unread ~= '0'
end

local function count_unread(tx, by, sign)
  tx.session.unread = tostring(records.count(tx, 'unread', by))
  if sign == '!' then records.count(tx, 'escalated', by) end
end

-- Drops the oldest acknowledged messages, with their idempotency keys. Returns whether there is room now.
local function make_room(tx)
  local kept, keys, unread, dropped = {}, {}, {}, {}
  for _, member in ipairs(redis.call('ZRANGE', tx.keys.unread, 0, -1)) do unread[split(member)] = true end
  for _, field in ipairs(redis.call('HKEYS', tx.keys.inbox)) do
    local id = tonumber(field)
    if id and not unread[id] then kept[#kept + 1] = id end
    if field:sub(1, 4) == 'key:' then keys[#keys + 1] = field end
  end
  table.sort(kept)
  for i = 1, math.min(DROPPED_AT_ONCE, #kept) do
    redis.call('HDEL', tx.keys.inbox, kept[i])
    dropped[kept[i]] = true
  end
  for _, field in ipairs(keys) do
    if dropped[tonumber(redis.call('HGET', tx.keys.inbox, field):match('^%d+'))] then
      redis.call('HDEL', tx.keys.inbox, field)
    end
  end
  records.count(tx, 'messages_dropped', math.min(DROPPED_AT_ONCE, #kept))
  return #kept > 0
end

-- Appends a message, within any transition of its session. `kind` is a word, `from` who sent it, `data` JSON (a text)
-- or nil; one that `escalates` calls for a person until it is acknowledged.
-- Returns its id; or nil and why it is refused: ended, full, long.
function inbox.add(tx, kind, from, text, data, escalates)
  if FINAL[tx.session.status] and not AFTER_END[kind] then return nil, 'ended' end
  if #text > inbox.BYTES_MAX or data and #data > inbox.BYTES_MAX then return nil, 'long' end
  local counted = redis.call('HMGET', tx.keys.session, 'messages', 'messages_dropped')
  if (counted[1] or 0) - (counted[2] or 0) >= MESSAGES_MAX and not make_room(tx) then return nil, 'full' end
  local id = records.count(tx, 'messages')
  local message = string.format('{"id":%d,"at_ms":%s,"kind":%s,"from":%s,"text":%s%s%s}', id, tx.clock,
    cjson.encode(kind), cjson.encode(from), cjson.encode(text), data and ',"data":' .. data or '',
    escalates and ',"escalates":true' or '')
  local sign = escalates and '!' or '-'
  redis.call('HSET', tx.keys.inbox, id, message)
  redis.call('ZADD', tx.keys.unread, 0, member_of(id, sign, ''))
  count_unread(tx, 1, sign)
  if escalates then changes.call_person(tx) end
  events.emit(tx, 'inbox.message', '', {id = id, kind = kind, from = from, text = texts.beginning(text, 200),
    escalates = escalates})
  return id
end

-- The stored text (JSON) of a message; nil if it is unknown or dropped.
function inbox.message(tx, id) return redis.call('HGET', tx.keys.inbox, id) or nil end

-- Whether no step that may still read it has got the message.
local function is_free(tx, owner)
  return owner == '' or not redis.call('ZSCORE', tx.keys.live, owner)
end

-- The unread messages that a reader may get, oldest first, within the limits of a turn, after those that it has.
local function find_free(tx, address)
  local number, bytes, free = 0, 0, {}
  local unread = redis.call('ZRANGE', tx.keys.unread, 0, -1)
  local function fits(id)
    number, bytes = number + 1, bytes + redis.call('HSTRLEN', tx.keys.inbox, id)
    return number == 1 or number <= TURN_MESSAGES and bytes <= TURN_BYTES
  end
  for _, member in ipairs(unread) do
    local id, _, owner = split(member)
    if address and owner == address then fits(id) end
  end
  for _, member in ipairs(unread) do
    local id, _, owner = split(member)
    if owner ~= address and is_free(tx, owner) then
      if not fits(id) then break end
      free[#free + 1] = member
    end
  end
  return free
end

local READERS = {agent = true, draft = true}   -- the actions whose prompt begins with messages

local function reads_messages(tx, address)
  return has_unread(tx) and READERS[programs.route_of(tx, address).action] and not turn_records.is_recheck(tx, address)
end

-- Gives the unread messages to an attempt that is being granted; what comes later waits for the next turn.
function inbox.give(tx, address)
  if not reads_messages(tx, address) then return end
  for _, member in ipairs(find_free(tx, address)) do
    local id, sign = split(member)
    redis.call('ZREM', tx.keys.unread, member)
    redis.call('ZADD', tx.keys.unread, 0, member_of(id, sign, address))
  end
end

-- The messages that a step has got and not acknowledged, oldest first (JSON); nil if there are none.
function inbox.given(tx, address)
  if not reads_messages(tx, address) then return nil end
  local given = {}
  for _, member in ipairs(redis.call('ZRANGE', tx.keys.unread, 0, -1)) do
    local id, _, owner = split(member)
    if owner == address then given[#given + 1] = inbox.message(tx, id) or nil end
  end
  return #given > 0 and given or nil
end

-- Marks messages as read.
local function acknowledge(tx, members, by)
  local ids, ending = {}, string.format(',"read_ms":%s,"read_by":%s}', tx.clock, cjson.encode(by))
  for _, member in ipairs(members) do
    local id, sign = split(member)
    redis.call('ZREM', tx.keys.unread, member)
    count_unread(tx, -1, sign)
    local text = inbox.message(tx, id)
    if text then redis.call('HSET', tx.keys.inbox, id, text:sub(1, -2) .. ending) end
    ids[#ids + 1] = id
  end
  if #ids > 0 then events.emit(tx, 'inbox.read', '', {ids = ids, by = by}) end
  return ids
end

-- Ends the call for a person of a message that a person has dealt with elsewhere; the next turn still reads it. `id`
-- is nil if the inbox had no room for the message.
function inbox.stop_calling(tx, id)
  for _, member in ipairs(id and redis.call('ZRANGE', tx.keys.unread, 0, -1) or {}) do
    local found, sign, owner = split(member)
    if found == id and sign == '!' then
      redis.call('ZREM', tx.keys.unread, member)
      redis.call('ZADD', tx.keys.unread, 0, member_of(id, '-', owner))
      records.count(tx, 'escalated', -1)
    end
  end
end

-- Acknowledges the messages of a step that has succeeded. Those of any other end are free for the next turn.
function inbox.settle(tx, address)
  if not reads_messages(tx, address) then return end
  local mine = {}
  for _, member in ipairs(redis.call('ZRANGE', tx.keys.unread, 0, -1)) do
    local _, _, owner = split(member)
    if owner == address then mine[#mine + 1] = member end
  end
  acknowledge(tx, mine, address)
end

-- Takes the unread messages that no turn has got, for a reader outside the session's steps. Returns their ids; a call
-- with the key of an earlier one gets the ids of that.
function inbox.take(tx, by, key)
  local takes = cjson.decode(redis.call('HGET', tx.keys.inbox, 'taken') or '[]')
  for _, take in ipairs(takes) do
    if key and take.key == key then return take.ids end
  end
  local ids = has_unread(tx) and acknowledge(tx, find_free(tx), by) or {}
  if key and #ids > 0 then
    table.insert(takes, 1, {key = key, ids = ids})
    takes[TAKES_KEPT + 1] = nil
    redis.call('HSET', tx.keys.inbox, 'taken', cjson.encode(takes))
  end
  return ids
end

return inbox
