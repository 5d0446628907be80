-- What the audit's scripts share: each names what does not agree, and mends it where it is asked to.
-- What is found is mended by the script that found it, so nothing can have changed in between.
answer.found = {}

local function found(kind, session, what, mend)
  local mended = A.repair and mend ~= nil
  if mended then mend() end
  table.insert(answer.found, {kind = kind, session = session, what = what, mended = mended or false})
end

-- Whether a score lies further ahead than what it stands for. Whatever was put off, or is hinted while its queue is
-- long, is looked at within minutes.
local LATE_MS = 600000
local function is_late(score, due)
  return tonumber(score) > math.max(now, tonumber(due) or 0) + LATE_MS
end

local function base_of(session, root)
  return GLOBAL .. '{' .. root .. '}:' .. session .. ':'
end

-- A line of a list across sessions: session|root|address, as a step and what its session is.
local function parted(line)
  local id, root, address = line:match('^(.-)|(.-)|(.*)$')
  local base = base_of(id or '', root or '')
  local one = {id = id, root = root, address = address, base = base}
  one.status = redis.call('HGET', base .. 'session', 'status') or ''
  return one
end

local function step_at(one)
  local text = redis.call('HGET', one.base .. 'steps', one.address)
  return text and cjson.decode(text) or nil
end

-- The root of a session that an index names; nil where there is no such session.
local function session_named(id)
  local root = redis.call('GET', GLOBAL .. 'id:' .. id)
  return root and redis.call('HGET', base_of(id, root) .. 'session', 'status') or nil, root
end
