-- Takes over a session that was copied from another store, stopped or ended, all or nothing. It stays so.
-- Arguments: session, root, member, program, routes, copied (the end of the keys of its records), counts (of them, by
--   part), fields (of its record that change), environment? (encrypted), definitions? (of its folder), errands
--   (messages of it that were on their way), leases (when its parked steps are due), store? (the caller's)
-- Document: of the program.
-- Returns: imported | exists (an earlier call imported it) | taken (another session has the id) | torn | other_store
--- @requires facts, indexes/changes, programs, results/artifacts, sessions, transaction

local SIZE = {hash = 'HLEN', list = 'LLEN', set = 'SCARD', stream = 'XLEN', string = 'STRLEN', zset = 'ZCARD'}

-- Whether no copied record has expired meanwhile.
local function is_whole(tx)
  for part, count in pairs(tx.args.counts) do
    local key = tx.keys[part] .. tx.args.copied
    local size = SIZE[redis.call('TYPE', key).ok]
    if not size or redis.call(size, key) ~= count then return false end
  end
  return true
end

-- The reply to a call that imports nothing; nil if it may.
local function refuse(tx)
  local args = tx.args
  if transaction.is_other_store(tx) then return 'other_store' end
  if redis.call('EXISTS', tx.prefix .. 'id:' .. args.session) == 1 then
    local made_by = redis.call('HGET', tx.keys.session, 'nonce')
    return made_by and made_by == args.fields.nonce and 'exists' or 'taken'
  end
  if not is_whole(tx) then return 'torn' end
end

local function take_records(tx)
  for part in pairs(tx.args.counts) do
    redis.call('RENAME', tx.keys[part] .. tx.args.copied, tx.keys[part])
    redis.call('PERSIST', tx.keys[part])
  end
end

-- Adds the session to the indexes, at the time of its creation.
local function list(tx)
  local session, created = tx.args.session, redis.call('HGET', tx.keys.session, 'created')
  redis.call('ZADD', tx.shared.sessions, created, session)
  redis.call('ZADD', tx.prefix .. 'status:' .. tx.session.status, created, session)
  facts.add(tx, tx.base, session)
  changes.add(tx, tx.session.status)
  if tx.session.status ~= 'completed' then changes.call_person(tx) end   -- a reader checks whether it needs one
end

return function(tx)
  local args = tx.args
  local word = refuse(tx)
  if word then return transaction.reply(tx, word) end
  take_records(tx)
  for name, value in pairs(args.fields) do redis.call('HSET', tx.keys.session, name, value) end
  redis.call('SET', tx.prefix .. 'id:' .. args.session, args.root)
  programs.attach(tx, args.program, tx.document, args.routes)
  sessions.keep_texts(tx)
  transaction.read_session(tx)
  list(tx)
  artifacts.refer_again(tx)
  for _, errand in ipairs(args.errands) do redis.call('ZADD', tx.shared.errands, tx.now, errand) end
  for member, at in pairs(args.leases) do redis.call('ZADD', tx.shared.leases, at, member) end
  local paused = redis.call('HGET', tx.keys.session, 'paused')
  sessions.schedule_deletion(tx)
  if paused then redis.call('HSET', tx.keys.session, 'paused', paused) end   -- it did not go on until today
  transaction.flush(tx)
  return transaction.reply(tx, 'imported')
end
