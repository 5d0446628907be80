-- Creates a session from copied records of another one, all or nothing. Its steps continue from a point of that one.
-- Arguments: session, root, member, key? and body (digest of the request), program, fields, routes, owner? (token,
--   size, quotas), request? (the document), store? (the id of the caller's store), counts (of the copied records, by
--   part), again, levels and threads (what runs, as for a resume), warnings, origin (its base; updated? if at rest)
-- Document: of the program.
-- Returns: created | exists(session) | conflict | taken | torn | quota(why) | other_store
--- @requires budgets, dispatch, events, programs, quotas, artifacts, resume, sessions, transaction
--- @requires turn_records

local SIZE = {ledger = 'LLEN'}

-- Whether the copied session is there, as it was if at rest, and no copied record has expired meanwhile.
local function is_whole(tx)
  local origin = tx.args.origin
  local found = redis.call('HMGET', origin.base .. 'session', 'status', 'updated')
  if not found[1] or (origin.updated and found[2] ~= origin.updated) then return false end
  for part, count in pairs(tx.args.counts) do
    if redis.call(SIZE[part] or 'HLEN', tx.keys[part]) ~= count then return false end
  end
  return true
end

-- The reply to a call that creates nothing; nil if it may.
local function refuse(tx)
  local args = tx.args
  if transaction.is_other_store(tx) then return 'other_store' end
  local made_by = redis.call('HGET', tx.keys.session, 'nonce')
  if made_by and made_by == args.fields.nonce then return 'created' end   -- the reply of the first call was lost
  if args.key then
    local made, body = sessions.find_by_key(tx)
    tx.reply.session = made
    if made then return body == args.body and 'exists' or 'conflict' end
  end
  tx.reply.why = args.owner and quotas.find_exceeded(tx, args.owner)
  if tx.reply.why then return 'quota' end
  if not is_whole(tx) then return 'torn' end
  if not redis.call('SET', tx.prefix .. 'id:' .. args.session, args.root, 'NX') then return 'taken' end
end

return function(tx)
  local args = tx.args
  local word = refuse(tx)
  if word then return transaction.reply(tx, word) end
  sessions.keep_key(tx)
  programs.attach(tx, args.program, tx.document, args.routes)
  sessions.write_fields(tx, args.fields)
  sessions.keep_texts(tx)
  local owner = args.owner or {}
  if owner.sessions then redis.call('HSET', tx.keys.session, 'max_sessions', owner.sessions) end
  quotas.assign(tx, owner.token, owner.size)
  sessions.keep(tx)
  sessions.list(tx)
  artifacts.refer_again(tx)
  for _, text in ipairs(args.warnings) do redis.call('RPUSH', tx.keys.warnings, text) end
  transaction.read_session(tx)
  events.emit(tx, 'session.created', '', {status = 'active'})
  if budgets.limits(tx).wall_ms then budgets.start_clock(tx, budgets.limits(tx).wall_ms) end
  turn_records.open(tx, '', {})
  resume.run_again(tx, args.again, args.levels, args.threads)
  dispatch.run(tx)
  transaction.flush(tx)
  return transaction.reply(tx, 'created')
end
