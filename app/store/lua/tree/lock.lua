-- Takes a named lock of the session's tree, or renews it. A caller that waits asks again and again.
-- Arguments: name, nonce (of the holder), ttl_ms, by (its name), address? and attempt? (the fence: of the attempt that
--   owns the lock; without, the session owns it), queue? (whether to wait in the line), fence? (of the grant: renew
--   only)
-- Returns: held(lock) | waiting(lock, before) | taken(lock, before) (by another) | lost (the grant is over) |
--   full (the line) | many (the session holds too many) | superseded (the attempt) | ended(status) | unknown
--- @requires addresses, locks/named, records, transaction

-- Why the owner may not hold a lock now; nil if it may. One that holds it may renew it while the session stops.
local function refuse(tx, args)
  local status = tx.session.status
  tx.reply.status = status
  if not transaction.AT_WORK[status] or status ~= 'active' and not args.fence then return 'ended' end
  if not args.address then return nil end
  local step = records.load(tx, 'steps', args.address)
  local runs = step and step.state == 'running' and step.fence == args.attempt
  return not runs and 'superseded' or nil
end

-- Takes the lock if it is free and the caller's turn, or waits for it.
local function take(tx, lock, record, caller)
  local before = named.before(record, caller.who, caller.nonce)
  if record.holder or before > 0 then
    if tx.args.queue then return named.wait(tx, record, caller) and 'waiting' or 'full' end
    named.leave(record, caller.who, caller.nonce)
    return 'taken'
  end
  if named.has_many(tx) then return 'many' end
  named.leave(record, caller.who, caller.nonce)
  named.grant(tx, lock, record, caller, tx.args.ttl_ms)
  return 'held'
end

return function(tx)
  local args = tx.args
  if not transaction.read_session(tx) then return transaction.reply(tx, 'unknown') end
  local why = refuse(tx, args)
  if why then return transaction.reply(tx, why) end
  local who, lock = addresses.member(tx, args.address or ''), named.lock_of(tx, args.name)
  local record, word = named.load(tx, lock), 'held'
  if named.is_same(record.holder, who, args.nonce) and (not args.fence or args.fence == record.holder.fence) then
    named.renew(tx, record, args.ttl_ms)
  elseif args.fence or named.is_same(record.last, who, args.nonce) then
    word = 'lost'
  else
    word = take(tx, lock, record, {who = who, nonce = args.nonce, by = args.by, attempt = args.attempt})
  end
  named.save(tx, lock, record)
  tx.reply.before = named.before(record, who, args.nonce)
  tx.reply.record = record
  return transaction.reply(tx, word)
end
