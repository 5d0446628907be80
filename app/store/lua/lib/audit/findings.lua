-- What the audit finds. The transition that finds something also repairs it, so nothing changes in between.
--- @requires transaction
local findings = {}

-- Starts the list of findings.
function findings.begin(tx)
  tx.reply.found = {}
end

-- Reports a finding; `repair(tx)` is called if the audit repairs.
function findings.add(tx, kind, session, what, repair)
  local repaired = tx.args.repair and repair ~= nil
  if repaired then repair(tx) end
  table.insert(tx.reply.found, {kind = kind, session = session, what = what, mended = repaired or false})
end

local LATE_MS = 600000   -- what is postponed, or hinted while its queue is long, is due within minutes

-- Whether a line is due much later than it should be.
function findings.is_late(tx, score, due)
  return tonumber(score) > math.max(tx.now, tonumber(due) or 0) + LATE_MS
end

-- A field of a hash; nil if there is none, or if the key holds something else.
function findings.field_of(key, name)
  local value = redis.pcall('HGET', key, name)
  return type(value) == 'string' and value or nil
end

-- The base of a session's keys.
function findings.base_of(tx, session, root)
  return tx.prefix .. '{' .. root .. '}:' .. session .. ':'
end

-- Gives a repaired key the TTL of its session, which may have ended before.
function findings.expire_with(key, session_key)
  local left = redis.call('PTTL', session_key)
  if left > 0 then redis.call('PEXPIRE', key, left) end
end

-- A line of a list across sessions, session|root|address, with the status of its session.
function findings.parse(tx, line)
  local id, root, address = line:match('^(.-)|(.-)|(.*)$')
  local base = findings.base_of(tx, id or '', root or '')
  local one = {id = id, root = root, address = address, base = base}
  one.status = findings.field_of(base .. 'session', 'status') or ''
  return one
end

-- The record of the step of a parsed line; nil if there is none.
function findings.step_at(one)
  local text = findings.field_of(one.base .. 'steps', one.address)
  return text and cjson.decode(text) or nil
end

-- Whether a step waits to start: in an active session, or as a last step of one that ends.
function findings.waits_to_start(status, step)
  if not step or step.state ~= 'ready' then return false end
  return status == 'active' or (step.last and transaction.AT_WORK[status]) or false
end

-- Status and root of a session that an index names; nil if there is no such session.
function findings.session_named(tx, id)
  local root = redis.call('GET', tx.prefix .. 'id:' .. id)
  return root and findings.field_of(findings.base_of(tx, id, root) .. 'session', 'status') or nil, root
end

return findings
