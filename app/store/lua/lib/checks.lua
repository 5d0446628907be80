-- Whether a control may be carried out: racing controls have one winner.
--- @requires budgets, labels, quotas, records, children
local checks = {}

local REMEMBERED = 8   -- nonces of the last controls: a repeated call may come after calls of others

-- Whether this call repeats one that was carried out: its reply was lost.
function checks.is_repeated(tx)
  local steered = redis.call('HGET', tx.keys.session, 'steered') or ''
  return tx.args.nonce and (' ' .. steered .. ' '):find(' ' .. tx.args.nonce .. ' ', 1, true)
end

-- Stores the call's nonce for `is_repeated`.
function checks.remember(tx)
  if not tx.args.nonce then return end
  local last = {tx.args.nonce}
  for nonce in (redis.call('HGET', tx.keys.session, 'steered') or ''):gmatch('%S+') do
    if #last < REMEMBERED then table.insert(last, nonce) end
  end
  redis.call('HSET', tx.keys.session, 'steered', table.concat(last, ' '))
end

-- Whether the session's status is one of those in which the call is allowed.
function checks.allows(tx)
  for _, status in ipairs(tx.args.from) do
    if status == tx.session.status then return true end
  end
  return false
end

local function contains(list, value)
  for _, one in ipairs(list) do
    if one == value then return true end
  end
  return false
end

-- Whether the session's status allows the control.
local function is_allowed(tx)
  local args, status = tx.args, tx.session.status
  local allowed = contains(args.from, status)
  if args.ended and args.ended ~= redis.call('HGET', tx.keys.session, 'ended') then allowed = false end
  -- It failed after the caller looked: the caller has not planned what runs again.
  if args.verb == 'resume' and status == 'failed' and not args.again then allowed = false end
  if args.above then   -- a command of the parent counts as long as the parent is in one of these statuses
    allowed = allowed and contains(args.above.status, redis.call('HGET', args.above.base .. 'session', 'status'))
  end
  return allowed
end

-- Whether the step that controls its own session is still held by the caller.
function checks.is_held(tx)
  local step = records.load(tx, 'steps', tx.args.by)
  return step and step.state == 'running' and step.fence == tx.args.fence
end

-- Whether a step was ever claimed: such a step has a fence, or has left an outcome.
local function has_begun(tx)
  for _, address in ipairs(redis.call('ZRANGE', tx.keys.live, 0, -1)) do
    if records.load(tx, 'steps', address).fence then return true end
  end
  return redis.call('EXISTS', tx.keys.out) == 1
end

-- The reply to a user's resume whose label is taken, or that exceeds a quota or a budget; nil if none applies.
local function refuse_resume(tx)
  tx.reply.session = labels.find_holder_of_own(tx)
  if tx.reply.session then
    tx.reply.status = tx.session.status
    return 'label_taken'
  end
  tx.reply.limit = quotas.full_quota(tx)
  if tx.reply.limit then return 'quota' end
  local over = budgets.find_spent(tx, tx.args.budget or {})
  if over then
    tx.reply.status, tx.reply.why, tx.reply.text = tx.session.status, over.what, budgets.describe(over)
    return 'refused'
  end
end

-- Whether a worker changes the session's folder, which no doer may do meanwhile.
local function is_folder_reserved(tx)
  return tonumber(redis.call('HGET', tx.keys.session, 'folder_reserved') or 0) > tx.now
end

local function refuse(tx, status, word)
  tx.reply.status = status
  return word or 'refused'
end

-- The reply to a control that is refused; nil if it is to be carried out.
function checks.refuse(tx)
  local args, status = tx.args, tx.session.status
  local allowed = is_allowed(tx)
  if args.by and not checks.is_held(tx) then return refuse(tx, 'superseded') end
  -- The plan of what runs again was made for an earlier state.
  if args.as_of and args.as_of ~= redis.call('HGET', tx.keys.session, 'updated') then
    return refuse(tx, status, 'moved')
  end
  -- The folder is held until the running steps are handed back, or their leases have passed.
  if args.verb == 'rehome' and (redis.call('ZCARD', tx.keys.running) > 0 or children.any_at_work(tx)) then
    return refuse(tx, 'at work')
  end
  if args.unclaimed and (status ~= 'active' or has_begun(tx)) then return refuse(tx, 'begun') end
  if args.verb == 'resume' and allowed and is_folder_reserved(tx) then
    -- The message from a parent stays in the outbox.
    return refuse(tx, args.above and status or 'folder in use', args.above and 'changed')
  end
  if args.verb == 'resume' and allowed and not args.above then
    local word = refuse_resume(tx)
    if word then return word end
  end
  if not allowed then return refuse(tx, status) end
end

return checks
