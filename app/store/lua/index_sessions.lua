-- Adds sessions to the index by kind, label and name that are missing there, a batch per call, and moves its mark.
-- The version that creates a session adds it: only those of a version before the index are missing.
-- Arguments: kinds (of sessions), limit (sessions of a batch)
-- Returns: indexed | more (call again)
--- @requires facts, transaction

local function text_of(ms)
  return string.format('%d', ms)
end

-- The sessions of a batch, oldest first, the time of the last one, and whether there may be more. All sessions of that
-- ms are in it: the mark is a time.
local function batch(tx, mark, to)
  local key, after = tx.shared.sessions, '(' .. text_of(mark)
  local rows = redis.call('ZRANGEBYSCORE', key, after, text_of(to), 'WITHSCORES', 'LIMIT', 0, tx.args.limit)
  local sessions = {}
  for i = 1, #rows, 2 do sessions[#sessions + 1] = rows[i] end
  if #sessions < tx.args.limit then return sessions, to, false end
  local last = rows[#rows]
  return redis.call('ZRANGEBYSCORE', key, after, last), tonumber(last), true
end

local function add(tx, session)
  local root = redis.call('GET', tx.prefix .. 'id:' .. session)
  if root then facts.add(tx, tx.prefix .. '{' .. root .. '}:' .. session .. ':', session) end
end

return function(tx)
  local mark, to = facts.mark(tx), tx.now - 1   -- in this ms another session may be created
  local sessions, last, is_full = batch(tx, mark, to)
  if #sessions == 0 then return transaction.reply(tx, 'indexed') end
  local listed = facts.listed(tx, tx.args.kinds, mark, last)
  for _, session in ipairs(sessions) do
    if not listed[session] then add(tx, session) end
  end
  facts.set_mark(tx, last)
  return transaction.reply(tx, is_full and 'more' or 'indexed')
end
