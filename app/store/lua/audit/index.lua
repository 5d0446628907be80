-- Audits lines of an index of sessions: whether each session exists, and is as the index says.
-- Arguments: list (sessions, facts, owed, status, users, owned), of? (a status, program or token), lines (sessions; of
--   `facts` its own lines), repair
-- Returns: looked(found)
--- @requires audit/findings, facts, transaction

-- Whether a session belongs to the list.
local belongs = {}
function belongs.sessions() return true end
function belongs.owed() return true end
function belongs.status(tx, status) return status == tx.args.of end
function belongs.owned(_, status) return transaction.AT_WORK[status] end
function belongs.facts(tx, _, id, root, line)
  for _, own in ipairs(facts.lines_of(findings.base_of(tx, id, root), id)) do
    if own == line then return true end
  end
end
function belongs.users(tx, _, id, root)
  return redis.call('HGET', findings.base_of(tx, id, root) .. 'session', 'program') == tx.args.of
end

local HAS = {owed = 'HEXISTS', users = 'SISMEMBER', owned = 'SISMEMBER'}
local REMOVE = {owed = 'HDEL', users = 'SREM', owned = 'SREM'}

local function is_listed(list, key, line)
  if HAS[list] then return redis.call(HAS[list], key, line) == 1 end
  return redis.call('ZSCORE', key, line)
end

local function check(tx, key, line)
  local list, id = tx.args.list, line
  if list == 'facts' then id = facts.session_of(line) end
  if not id or not is_listed(list, key, line) then return end
  local status, root = findings.session_named(tx, id)
  if status and belongs[list](tx, status, id, root, line) then return end
  local of = tx.args.of or list == 'facts' and line
  findings.add(tx, 'index_stray', id,
    'it is ' .. (status or 'deleted') .. ', but is listed under ' .. (of and list .. ' ' .. of or list),
    function() redis.call(REMOVE[list] or 'ZREM', key, line) end)
end

return function(tx)
  local list, of = tx.args.list, tx.args.of
  findings.begin(tx)
  for _, line in ipairs(tx.args.lines) do check(tx, tx.prefix .. (of and list .. ':' .. of or list), line) end
  return transaction.reply(tx, 'looked')
end
