-- Attempts: granting a step to a worker under a fence, a lease and a deadline.
--- @requires addresses, events, inbox, programs, records, turn_records, work_diffs
local attempts = {}

attempts.GRACE_MS = 10000   -- past its deadline, for the worker to kill and settle

-- The older runs that the turns around a step continue, in a session that was resumed from an earlier point.
local function origins_of(tx, address)
  local found
  for _, around in ipairs(addresses.turns_around(addresses.block_of(address))) do
    local id = around.id
    local turn = records.load(tx, 'turns', id)
    while turn and turn.origin do
      found = found or {}
      found[id], id = turn.origin, turn.origin.run
      turn = records.load(tx, 'turns', id)
    end
  end
  return found
end

-- What the worker gets with its grant. The conversation continues where the last outcome left it.
function attempts.terms(tx, address, step)
  local r = programs.route_of(tx, address)
  local talk = r.talk
  return {address = address, fence = step.fence, nonce = step.nonce, attempt = step.attempt,
    lease = step.lease, deadline = step.deadline, lost = step.lost or 0, failed = step.failed or 0,
    failure = step.failure, ending = step.ending, given = step.given,
    thread = talk and redis.call('HGET', tx.keys.threads, talk) or nil,
    origins = origins_of(tx, address), messages = inbox.given(tx, address),
    recheck = turn_records.recheck_around(tx, address),
    compare = r.folder and work_diffs.was_stopped(tx) or step.approved == step.fence or nil,
    approved = step.approved == step.fence or nil,
    definitions = tx.session.definitions ~= '' and tx.session.definitions or nil}
end

-- Grants a ready step to the worker that calls.
function attempts.grant(tx, address, nonce)
  local step, r = records.load(tx, 'steps', address), programs.route_of(tx, address)
  step.state, step.nonce, step.owner = 'running', nonce, tx.args.worker
  step.fence, step.attempt = (step.fence or 0) + 1, (step.attempt or 0) + 1
  step.since, step.due, step.hinted, step.hints = tx.now, nil, nil, nil
  step.told, step.told_in, step.told_out = nil, nil, nil
  step.heard, step.deadline = nil, tx.now + r.timeout_ms
  step.lease = math.min(tx.now + tx.args.lease_ms, step.deadline + attempts.GRACE_MS)
  if r.folder and work_diffs.take_binding(tx, address, step.fence) then step.approved = step.fence end
  records.save(tx, 'steps', address)
  redis.call('ZADD', tx.keys.running, 0, address)
  redis.call('ZADD', tx.shared.leases, step.lease, addresses.member(tx, address))
  local fields = {fence = step.fence, attempt = step.attempt, worker = tx.args.worker}
  if r.step then fields.index, fields.total = r.step[1], r.step[2] end
  local id = addresses.path_of(tx, address):match('[^/]*$')
  if r.step or r.label ~= id and r.label ~= id:gsub('^check%.', '') then fields.label = r.label end
  events.emit(tx, 'step.claimed', address, fields)
  inbox.give(tx, address)
  return attempts.terms(tx, address, step)
end

return attempts
