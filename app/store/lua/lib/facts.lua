-- The index of sessions by kind, label, name and folder: a line for each fact, `fact<value<created<session`, in the
-- order of the names. So the sessions of one value are in the order of their creation.
--
-- A session has a line for the folder that it is listed in and each one above: `folder<hash<created<session`. So the
-- sessions of a folder and those beneath it are together.
local facts = {}

local NAMES = {'kind', 'label', 'name'}
local FOLDER = 'listed_in'   -- the field with the folder
local LONGEST = 480   -- bytes of a value; a filter has at most 120 characters
local DEEPEST = 32    -- folders of a path that have lines, from the top; app/store/session_reads.py knows it too
local HASH = 16       -- digits of a folder's hash

local function digits(ms)
  return string.format('%014d', ms)
end

local function line_of(name, value, created, session)
  return name .. '<' .. value .. '<' .. digits(created) .. '<' .. session
end

-- Hashes of a folder and of those above it, without the root.
local function folders_of(path)
  local found, from = {}, 2
  if type(path) ~= 'string' or path:sub(1, 1) ~= '/' or #path < 2 then return found end
  repeat
    local slash = path:find('/', from, true)
    found[#found + 1] = redis.sha1hex(path:sub(1, (slash or 0) - 1)):sub(1, HASH)
    from = (slash or 0) + 1
  until not slash or #found == DEEPEST
  return found
end

-- The lines of a session with these fields.
local function lines_with(session, fields, created)
  local lines = {}
  for _, name in ipairs(NAMES) do
    local value = fields[name]
    if type(value) == 'string' and value ~= '' and #value <= LONGEST then
      lines[#lines + 1] = line_of(name, value, created, session)
    end
  end
  for _, hash in ipairs(folders_of(fields[FOLDER])) do
    lines[#lines + 1] = line_of('folder', hash, created, session)
  end
  return lines
end

-- The lines that a session should have, by its record below `base`; none if it does not exist.
function facts.lines_of(base, session)
  local values = redis.call('HMGET', base .. 'session', 'status', 'created', FOLDER, unpack(NAMES))
  if not values[1] or not values[2] then return {} end
  local fields = {[FOLDER] = values[3]}
  for i, name in ipairs(NAMES) do fields[name] = values[i + 3] end
  return lines_with(session, fields, values[2])
end

-- The session that a line names.
function facts.session_of(line)
  return line:match('^%l+<.*<%d+<([^<]*)$')
end

local function add(tx, lines)
  if #lines == 0 then return end
  local members = {}
  for _, line in ipairs(lines) do
    members[#members + 1] = 0
    members[#members + 1] = line
  end
  redis.call('ZADD', tx.shared.facts, unpack(members))
end

-- Adds the lines of a new session.
function facts.add_new(tx)
  add(tx, lines_with(tx.args.session, tx.args.fields, tx.now))
end

-- Removes the lines of the session, whose record still exists.
function facts.remove(tx)
  local lines = facts.lines_of(tx.base, tx.args.session)
  if #lines > 0 then redis.call('ZREM', tx.shared.facts, unpack(lines)) end
end

return facts
