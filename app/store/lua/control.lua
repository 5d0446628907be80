-- Controls a session: stop, resume, exit, abort, rehome, poke. Racing controls have one winner.
-- Arguments: verb, from (statuses in which the control is allowed), seen? (the state that the caller saw), nonce?,
--   reason?, by? and fence? (the step that controls its own session), ended? (the end that is resumed),
--   above? (base and statuses of the parent that commands it), after?,
--   child? (its usage is counted) and address? (of the step that started it),
--   unclaimed? (only while no step was ever claimed), place?, folder? and signature? (of a rehome);
--   of a resume: as_of? (`updated` of the state for which it was planned), again?, levels?, threads? (what runs again),
--   skips? (nodes of the innermost block that is opened, whose next run is skipped: name, reason, lists),
--   accept_protected? (whether changed protected files are taken as they are),
--   adopts? (another program: program, document, routes, signature, source, schema, and afresh: what is not done runs
--   again), defines? (the definitions of its folder: mark, text, signature), budget? (limits that change),
--   max_iterations? and max_of? (the loop with that limit; without, the outermost loops that are opened or, if nothing
--   runs again, are open)
-- Returns: done (also if repeated) | refused(status; of a spent budget also why, text) | changed(status) |
--   quota(limit) | label_taken(status, session) | moved(status) | unknown
--- @requires checks, effects, dispatch, sessions, transaction, usage
return function(tx)
  local args = tx.args
  if not transaction.read_session(tx) then return transaction.reply(tx, 'unknown') end
  if checks.is_repeated(tx) then
    tx.reply.status = tx.session.status
    return transaction.reply(tx, 'done')
  end
  if not sessions.is_as_seen(tx) then
    tx.reply.status = tx.session.status
    return transaction.reply(tx, 'changed')
  end
  if args.child then usage.add_child(tx, args.child, args.address) end
  local word = checks.refuse(tx)
  if word then return transaction.reply(tx, word) end
  effects[args.verb](tx)
  checks.remember(tx)
  dispatch.run(tx)
  transaction.flush(tx)
  tx.reply.status = tx.session.status
  return transaction.reply(tx, 'done')
end
