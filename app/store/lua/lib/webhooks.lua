-- Webhooks: deliveries are queued by the transition that makes their event true.
--- @requires records
local webhooks = {}

-- Whether the session has a webhook for an event.
local function is_asked_for(tx, event)
  return (',' .. tx.session.rings .. ','):find(',' .. event .. ',', 1, true) ~= nil
end

-- Queues one delivery, with the session's status at this time. It is kept until it arrives or is given up.
function webhooks.enqueue(tx, event, status, reason)
  if not is_asked_for(tx, event) then return end
  local id = tx.args.session .. '-' .. event .. '-' .. string.format('%d', tx.now)
  redis.call('HSET', tx.keys.hooks, id, cjson.encode({event = event, at = tx.now, status = status,
    reason = reason, tries = 0}))
  redis.call('ZADD', tx.shared.hooks, tx.now, tx.args.member .. id)
end

-- Queues an event about a task of the session's plan: `reported`, `proposed` or `task_failed`. It has ids and words,
-- and no text of a child's.
function webhooks.enqueue_about_task(tx, event, task, more)
  if not is_asked_for(tx, event) then return end
  local about = {id = task.id, run = task.run, session = task.session, status = task.word or task.state}
  for name, value in pairs(more or {}) do about[name] = value end
  local id = table.concat({tx.args.session, event, string.format('%d', tx.now), about.proposal or task.id}, '-')
  redis.call('HSET', tx.keys.hooks, id, cjson.encode({event = event, at = tx.now, status = tx.session.status,
    task = about, tries = 0}))
  redis.call('ZADD', tx.shared.hooks, tx.now, tx.args.member .. id)
end

-- Whether each live step waits for a person. Once that was reported (`rung`), a step that begins to wait for something
-- else is ready or running before, so counting is enough.
local function waits_for_people(tx)
  local parked = redis.call('ZCARD', tx.keys.parked)
  if parked == 0 or parked < redis.call('ZCARD', tx.keys.live) then return false end
  if tx.session.rung ~= '' then return true end
  local at = 0
  repeat
    local part = redis.call('ZRANGE', tx.keys.parked, at, at + 99)
    for _, address in ipairs(part) do
      if records.load(tx, 'steps', address).parked.on ~= 'human' then return false end
    end
    at = at + #part
  until at >= parked
  return true
end

-- Queues `waiting` once for each time that the whole session waits for people.
function webhooks.enqueue_if_waiting(tx)
  if not is_asked_for(tx, 'waiting') or tx.session.status ~= 'active' then return end
  local waits = waits_for_people(tx)
  if waits and tx.session.rung == '' then
    webhooks.enqueue(tx, 'waiting', 'waiting')
    redis.call('HSET', tx.keys.session, 'rung', tx.now)
  elseif not waits and tx.session.rung ~= '' then
    redis.call('HDEL', tx.keys.session, 'rung')
  end
end

return webhooks
