-- What each control does to the session.
--- @requires addresses, budgets, events, changes, locks/locks, migrate, outcomes, plans/progress, programs
--- @requires records, resume, sessions, steps/last, steps/shares, children, turn_records, turns, work_diffs
local effects = {}

-- Changes the status, and emits that.
local function change_status(tx, status)
  sessions.set_status(tx, status, tx.args.reason)
  events.emit(tx, 'session.status', '', {status = status, reason = tx.args.reason, after = tx.args.after})
end

-- Ends the root. If it is closing already, the caller's verdict replaces the one with which it closes.
local function end_root(tx, verdict)
  local root = records.load(tx, 'turns', '')
  if root.state == 'open' then return turns.end_early(tx, '', verdict, tx.args.reason) end
  root.verdict, root.reason = verdict, tx.args.reason
  records.save(tx, 'turns', '')
  turns.try_close(tx, '', root)
end

-- Releases the ready steps, so that they are hinted again.
local function release_ready(tx)
  for _, address in ipairs(redis.call('ZRANGE', tx.keys.live, 0, -1)) do
    if records.load(tx, 'steps', address).state == 'ready' then table.insert(tx.released, address) end
  end
end

-- Closes the turns whose children ended while the session was stopped: no other transition would.
local function close_quiet(tx)
  for _, id in ipairs(redis.call('ZRANGE', tx.keys.open, 0, -1)) do
    local turn = records.load(tx, 'turns', id)
    if turn.state == 'closing' then turns.try_close(tx, id, turn) end
  end
end

-- Raises the iteration limit of the outermost loops of a stopped session.
local function raise_limits(tx)
  for _, id in ipairs(redis.call('ZRANGE', tx.keys.open, 0, -1)) do
    local turn = records.load(tx, 'turns', id)
    if id ~= '' and addresses.block_of(id) == '' and not turn.each and turn.state == 'open' then
      local more = tx.args.max_iterations - turn_records.allowance(turn)
      shares.expect(tx, '', more * (programs.route_of(tx, id).body or 0))
      turn.max = turn.max + more
      records.save(tx, 'turns', id)
    end
  end
end

-- Notes that a user resumed a child whose parent has ended: the audit does not abort it as an orphan of that end.
local function detach(tx)
  local above = not tx.args.above and tx.session.parent ~= '' and cjson.decode(tx.session.parent).base
  local values = above and redis.call('HMGET', above .. 'session', 'status', 'ended')
  if values and (values[2] or not values[1]) then
    redis.call('HSET', tx.keys.session, 'alone', values[2] or '')
    redis.call('ZREM', tx.shared.errands, 'abort|' .. tx.args.member)
  else
    redis.call('HDEL', tx.keys.session, 'alone')
  end
end

function effects.stop(tx)
  change_status(tx, 'stopping')
  budgets.stop_clock(tx)
  children.send_all(tx, 'stop', last.has_child)
  sessions.withdraw_all(tx)
  sessions.stop_if_idle(tx)
end

function effects.resume(tx)
  local failed = tx.session.status == 'failed'
  sessions.keep(tx)
  detach(tx)
  work_diffs.request_comparison(tx)
  redis.call('HSET', tx.keys.session, 'resumed', tx.args.accept_protected and 'accept' or 'compare')
  children.send_all(tx, 'resume')
  if tx.args.adopts then migrate.adopt(tx, tx.args.adopts) end
  if tx.args.defines then migrate.define(tx, tx.args.defines) end
  redis.call('HDEL', tx.keys.session, 'ended', 'reason')
  tx.args.reason = nil
  change_status(tx, 'active')
  if tx.args.after then
    redis.call('HSET', tx.keys.session, 'after', tx.args.after)
  else
    redis.call('HDEL', tx.keys.session, 'after')
  end
  if tx.args.max_iterations and not tx.args.again then raise_limits(tx) end
  if tx.args.above then budgets.find_spent(tx, {}) end
  budgets.resume(tx)
  if failed then
    resume.reopen_root(tx)
    redis.call('HSET', tx.keys.session, 'revived', tx.clock)   -- tokens of the session's life before are void
  end
  if not failed then last.reset(tx) end
  release_ready(tx)
  if tx.args.again then resume.run_again(tx, tx.args.again, tx.args.levels or {}, tx.args.threads) end
  close_quiet(tx)
  progress.look(tx)
  sessions.report_resume(tx)
  changes.call_person(tx)   -- a question may be open, and readers remove a stopped session from the index
end

function effects.exit(tx)
  change_status(tx, 'exiting')
  redis.call('HSET', tx.keys.session, 'exit_by', tx.args.by or '', 'exited_at', tx.now)
  end_root(tx, 'exit')
end

function effects.abort(tx)
  change_status(tx, 'aborting')
  if records.load(tx, 'turns', '').state == 'closed' then return sessions.finish(tx, 'aborted', tx.args.reason) end
  end_root(tx, 'abort')
end

-- A child has stopped or ended: what waited for that may be over.
function effects.poke(tx)
  outcomes.close_around(tx, tx.args.address and addresses.block_of(tx.args.address) or '')
  sessions.stop_if_idle(tx)
end

-- Binds the session to another place: ready steps are hinted there, running ones settle where they are.
function effects.rehome(tx)
  sessions.withdraw_all(tx)
  locks.release_folders(tx)
  tx.session.place, tx.session.folder = tx.args.place, tx.args.folder
  redis.call('HSET', tx.keys.session, 'place', tx.args.place, 'folder', tx.args.folder,
    'signature', tx.args.signature)
  redis.call('HDEL', tx.keys.session, 'resolved')
  events.emit(tx, 'session.rehomed', '', {place = tx.args.place})
end

return effects
