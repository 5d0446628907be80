-- Appends a message to the session's inbox. A repeated call finds it by its key.
-- Arguments: kind, from, text, data? (JSON, a text), escalates?, key? and digest? (of the request), child? (base of the
--   session that reports to this one; address and fence of its attempt, or since: the life of its session token)
-- Returns: added(messages) | repeated(messages) | conflict | ended(status) | full | long | superseded | child_ended |
--   unknown
--- @requires inbox, transaction

-- Why the child may not report now; nil if it may.
local function refuse_child(child)
  local fields = redis.call('HMGET', child.base .. 'session', 'status', 'created', 'revived')
  if not transaction.AT_WORK[fields[1]] then return 'child_ended' end
  if child.since and (fields[1] ~= 'active' or (fields[3] or fields[2]) ~= child.since) then return 'superseded' end
  if not child.address then return nil end
  local text = redis.call('HGET', child.base .. 'steps', child.address)
  local step = text and cjson.decode(text)
  return not (step and step.state == 'running' and step.fence == child.fence) and 'superseded' or nil
end

return function(tx)
  local args = tx.args
  if not transaction.read_session(tx) then return transaction.reply(tx, 'unknown') end
  local field = args.key and 'key:' .. args.key
  local id, digest = (field and redis.call('HGET', tx.keys.inbox, field) or ''):match('^(%d+)|(.*)$')
  if id then
    tx.reply.messages = {inbox.message(tx, id)}
    return transaction.reply(tx, digest == args.digest and 'repeated' or 'conflict')
  end
  local why = args.child and refuse_child(args.child)
  if why then return transaction.reply(tx, why) end
  local added, refusal = inbox.add(tx, args.kind, args.from, args.text, args.data, args.escalates)
  if not added then
    tx.reply.status = tx.session.status
    return transaction.reply(tx, refusal)
  end
  if field then redis.call('HSET', tx.keys.inbox, field, added .. '|' .. args.digest) end
  transaction.flush(tx)
  tx.reply.messages = {inbox.message(tx, added)}
  return transaction.reply(tx, 'added')
end
