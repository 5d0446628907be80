-- Creates a session, all or nothing. A repeated call finds it by its idempotency key, or by its nonce (a field of the
-- session) if the reply of the first call was lost.
-- Arguments: session, root, member, key? and body (digest of the request), program, fields, routes? (none: the program
--   is stored already), parent? (base, address and fence of the step that starts it), limits? (of the tree, for a child
--   that a body starts: depth, children of one session, sessions), owner? (token, size, quotas), request? (the
--   document), environment? (encrypted), definitions? (of its folder), store? (the id of the caller's store),
--   warnings? (about what was submitted)
-- Document: of the program, if the routes are given.
-- Returns: created | exists(session) | conflict | taken | refused | tree_limit(why, limit) | quota(why) |
--   label_taken(session) | other_store | no_program
--- @requires budgets, dispatch, events, labels, programs, quotas, sessions, steps/shares, transaction, parents
--- @requires turn_records, turns

return function(tx)
  local args = tx.args
  if transaction.is_other_store(tx) then return transaction.reply(tx, 'other_store') end
  if args.key then
    local made, body = sessions.find_by_key(tx)
    tx.reply.session = made
    local found = made and (body ~= args.body and 'conflict' or parents.take_over(tx, made) and 'exists' or 'refused')
    if found then return transaction.reply(tx, found) end
  end
  if args.parent and not parents.is_running(args.parent) then return transaction.reply(tx, 'refused') end
  local made_by = redis.call('HGET', tx.keys.session, 'nonce')
  if made_by and made_by == args.fields.nonce then return transaction.reply(tx, 'created') end
  tx.reply.why, tx.reply.limit = parents.find_exceeded(tx)
  if tx.reply.why then return transaction.reply(tx, 'tree_limit') end
  tx.reply.session = labels.find_holder(tx, args.fields.unique_label or '')
  if tx.reply.session then return transaction.reply(tx, 'label_taken') end
  tx.reply.why = args.owner and quotas.find_exceeded(tx, args.owner)
  if tx.reply.why then return transaction.reply(tx, 'quota') end
  -- The caller took the program for stored, but its last session was deleted.
  if not args.routes and redis.call('EXISTS', tx.program) == 0 then return transaction.reply(tx, 'no_program') end
  local is_new = redis.call('SET', tx.prefix .. 'id:' .. args.session, args.root, 'NX')
  if not is_new then return transaction.reply(tx, 'taken') end
  sessions.keep_key(tx)
  if args.parent then  -- a child is listed where its parent is, also if it works in a worktree
    args.fields.listed_in = redis.call('HGET', args.parent.base .. 'session', 'listed_in') or args.fields.listed_in
  end
  programs.attach(tx, args.program, tx.document, args.routes)
  parents.link(tx)
  sessions.write_fields(tx, args.fields)
  sessions.keep_texts(tx)
  local owner = args.owner or {}
  if owner.sessions then redis.call('HSET', tx.keys.session, 'max_sessions', owner.sessions) end
  quotas.assign(tx, owner.token or args.parent and quotas.token_of(args.parent.base), owner.size)
  sessions.list(tx)
  transaction.read_session(tx)
  events.emit(tx, 'session.created', '', {status = 'active'})
  for _, text in ipairs(args.warnings or {}) do events.warn(tx, text) end
  if budgets.limits(tx).wall_ms then budgets.start_clock(tx, budgets.limits(tx).wall_ms) end
  shares.begin(tx)
  turn_records.open(tx, '', {})
  turns.open_block(tx, '')
  dispatch.run(tx)
  transaction.flush(tx)
  return transaction.reply(tx, 'created')
end
