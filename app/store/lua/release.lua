-- Hands an attempt back, which does not count: on drain, on stop, or because its turn ends. Also if the worker finds
-- that the real path of the folder differs: then, once, the session locks the real folder, and the step waits for it.
-- Arguments: address, fence, nonce, why, usage?, digest?, changed?, work?, owner?, patch?, folder? (the real lock)
-- Returns: released | kept (nothing is handed back, the attempt continues) | superseded
--- @requires deadlines, dispatch, locks/locks, outcomes, records, sessions, transaction, children, usage
--- @requires work_diffs

-- Locks the real folder from now on, once and if nothing else of the session runs. Returns whether it does.
local function change_folder(tx)
  local session, folder = tx.session, tx.args.folder
  if session.folder == '' or session.folder == folder then return false end
  if redis.call('HEXISTS', tx.keys.session, 'resolved') == 1 then return false end
  if redis.call('ZCARD', tx.keys.running) > 1 or children.any_at_work(tx) then return false end
  sessions.withdraw_all(tx)
  locks.release_folders(tx)
  session.folder = folder
  redis.call('HSET', tx.keys.session, 'folder', folder, 'resolved', 1)
  return true
end

return function(tx)
  local args = tx.args
  local address = args.address
  local step = transaction.read_session(tx) and records.load(tx, 'steps', address)
  if not step or step.state ~= 'running' or step.fence ~= args.fence or step.nonce ~= args.nonce then
    return transaction.reply(tx, 'superseded')
  end
  local late = deadlines.refuse(tx, address, step, 'superseded')
  if late then return late end
  if args.folder and not change_folder(tx) then return transaction.reply(tx, 'kept') end
  step.attempt = step.attempt - 1
  usage.add_attempt(tx, address, step, args.usage)
  work_diffs.keep(tx, address)
  outcomes.hand_back(tx, address, step, 'step.released', {why = args.why})
  dispatch.run(tx)
  transaction.flush(tx)
  return transaction.reply(tx, 'released')
end
