-- The status of the session: changing it, and the consequences of its end.
--- @requires addresses, budgets, events, facts, changes, labels, locks/calls, locks/locks, parts, quotas
--- @requires records, steps/last, steps/shares, children, detachment, statistics, webhooks
local sessions = {}

-- Writes the fields of a new session, which is active from now on.
function sessions.write_fields(tx, fields)
  local pairs_of = {'status', 'active', 'created', tx.now}
  for name, value in pairs(fields) do
    pairs_of[#pairs_of + 1], pairs_of[#pairs_of + 2] = name, value
  end
  redis.call('HSET', tx.keys.session, unpack(pairs_of))
end

local KEY_S = 7 * 24 * 3600   -- an idempotency key is remembered, at most as long as its session

-- The session that has the call's idempotency key already, and the digest of its request.
function sessions.find_by_key(tx)
  local made, body = (redis.call('GET', tx.prefix .. 'idem:' .. tx.args.key) or ''):match('^(.-)|(.*)$')
  if made and redis.call('EXISTS', tx.prefix .. 'id:' .. made) == 1 then return made, body end
end

-- Stores the idempotency key of a new session, if the call has one.
function sessions.keep_key(tx)
  local args = tx.args
  if not args.key then return end
  redis.call('SET', tx.prefix .. 'idem:' .. args.key, args.session .. '|' .. args.body, 'EX', KEY_S)
  redis.call('HSET', tx.keys.session, 'key', args.key)
end

-- Deletes the idempotency key of a session that is deleted, unless another session has it now.
function sessions.forget_key(tx)
  local key = redis.call('HGET', tx.keys.session, 'key')
  local name = key and tx.prefix .. 'idem:' .. key
  if name and (redis.call('GET', name) or ''):match('^(.-)|') == tx.args.session then redis.call('DEL', name) end
end

-- Adds a new session to the indexes; it takes its label.
function sessions.list(tx)
  redis.call('ZADD', tx.shared.sessions, tx.now, tx.args.session)
  redis.call('ZADD', tx.prefix .. 'status:active', tx.now, tx.args.session)
  facts.add_new(tx)
  labels.hold(tx)
  changes.add(tx, 'active')
end

-- Stores the document of a new session, its encrypted environment and its folder's definitions, if it has them.
function sessions.keep_texts(tx)
  for _, part in ipairs({'request', 'environment', 'definitions'}) do
    if (tx.args[part] or '') ~= '' then redis.call('SET', tx.keys[part], tx.args[part]) end
  end
end

-- Removes a session, whose record still exists, from the indexes.
function sessions.unlist(tx)
  redis.call('ZREM', tx.shared.sessions, tx.args.session)
  redis.call('ZREM', tx.prefix .. 'status:' .. tx.session.status, tx.args.session)
  facts.remove(tx)
  changes.forget(tx)
end

-- Changes the status, also in the indexes by status.
function sessions.set_status(tx, status, reason)
  redis.call('ZREM', tx.prefix .. 'status:' .. tx.session.status, tx.args.session)
  local created = redis.call('HGET', tx.keys.session, 'created')
  redis.call('ZADD', tx.prefix .. 'status:' .. status, created, tx.args.session)
  tx.session.status = status
  redis.call('HSET', tx.keys.session, 'status', status)
  if reason then redis.call('HSET', tx.keys.session, 'reason', cjson.encode(reason)) end
  changes.add(tx, status)
  if status == 'failed' then changes.call_person(tx) end
end

local WEBHOOK_MS = 60000             -- a session that is deleted at its end stays this long for its webhook
local SPARE_S = 30 * 24 * 3600       -- a fleet that is down for less still finds all sessions that it has to delete
local EXPORT_S = 10 * 365 * 24 * 3600

-- Queues the deletion of an ended or stopped session. The TTL of its keys, a month later, is the safety net: only the
-- deletion cleans the indexes and the program. The keys of a session that is to be exported wait much longer, so that
-- the net never loses it.
function sessions.schedule_deletion(tx)
  labels.release(tx)
  tx.session.retention = redis.call('HGET', tx.keys.session, 'retention_' .. tx.session.status) or tx.session.retention
  local owed = redis.call('HGET', tx.keys.session, 'export') == '1'
  tx.keep_s = tx.session.retention + (owed and EXPORT_S or SPARE_S)
  local wait = tx.session.retention * 1000
  if wait == 0 and tx.session.rings ~= '' then wait = WEBHOOK_MS end
  redis.call('ZADD', tx.shared.errands, tx.now + wait, 'forget|' .. tx.args.member)
  redis.call('HSET', tx.keys.session, 'paused', tx.clock)
end

-- Whether the session is as its caller saw it; true if the caller did not look.
function sessions.is_as_seen(tx)
  local seen = tx.args.seen
  local updated = redis.call('HGET', tx.keys.session, 'updated')
  return not seen or seen == cjson.null or (seen.status == tx.session.status and seen.updated == updated)
end

-- Takes the TTLs and the deletion of a session back, which resumes; it holds its label again.
function sessions.keep(tx)
  local paused = tonumber(redis.call('HGET', tx.keys.session, 'paused') or tx.now)
  shares.shift(tx, tx.now - paused)
  quotas.count_session(tx)
  labels.hold(tx)
  for part in pairs(parts.session) do redis.call('PERSIST', tx.keys[part]) end
  redis.call('PERSIST', tx.prefix .. 'id:' .. tx.args.session)
  redis.call('ZREM', tx.shared.errands, 'forget|' .. tx.args.member)
  redis.call('HDEL', tx.keys.session, 'archived')
end

-- Takes back the hints, tickets and places of all ready steps, and releases the steps: those that may still run are
-- hinted again at the end of the transition.
function sessions.withdraw_all(tx)
  for _, address in ipairs(redis.call('ZRANGE', tx.keys.live, 0, -1)) do
    redis.call('ZREM', tx.shared.ready, addresses.member(tx, address))
    local step = records.load(tx, 'steps', address)
    if step.state == 'ready' then table.insert(tx.released, address) end
    if step.waits or step.places then
      if step.waits then calls.give_up(tx, address) end
      step.places = nil
      records.save(tx, 'steps', address)
    end
  end
  redis.call('DEL', tx.keys.hinted, tx.keys.waiting)
end

-- Queues the report of an end, a stop or a resume to the parent.
local function report_to_parent(tx)
  if tx.session.parent == '' then return end
  redis.call('ZADD', tx.shared.errands, tx.now, 'deliver|' .. tx.args.member)
  tx.reply.tell = true
end

-- Reports the resume of a session that carries out a task of its parent's plan: the task works again.
function sessions.report_resume(tx)
  if tx.session.parent ~= '' and cjson.decode(tx.session.parent).task then report_to_parent(tx) end
end

-- Ends the session.
function sessions.finish(tx, status, reason)
  sessions.set_status(tx, status, reason)
  redis.call('HSET', tx.keys.session, 'ended', tx.now)
  statistics.count_session(tx, status, reason)
  budgets.stop_clock(tx)
  redis.call('DEL', tx.keys.hinted, tx.keys.waiting)
  if status ~= 'failed' then
    redis.call('DEL', tx.keys.arrived, tx.keys.widths, tx.keys.skips, tx.keys.environment, tx.keys.definitions)
  end
  events.emit(tx, 'session.ended', '', {status = status, reason = reason})
  tx.reply.ended = status
  quotas.release_session(tx)
  webhooks.enqueue(tx, 'ended', status, reason)
  if status == 'failed' then webhooks.enqueue(tx, 'failed', status, reason) end
  locks.release_all(tx)
  detachment.end_children(tx)
  sessions.schedule_deletion(tx)
  report_to_parent(tx)
end

-- Makes a stopping session stopped, once its running steps and its children have stopped, and its last steps have
-- ended.
function sessions.stop_if_idle(tx)
  if tx.session.status ~= 'stopping' then return end
  if redis.call('ZCARD', tx.keys.running) > 0 or children.any_at_work(tx) or last.run(tx) then return end
  sessions.set_status(tx, 'stopped')
  sessions.schedule_deletion(tx)
  locks.release_all(tx)
  events.emit(tx, 'session.status', '', {status = 'stopped'})
  report_to_parent(tx)
end

return sessions
