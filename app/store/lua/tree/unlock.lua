-- Releases a named lock of the session's tree, or leaves the line of those who wait for it.
-- Arguments: name, nonce (of the holder), address? (of the attempt that owns it)
-- Returns: released | gone (the caller held nothing: the time was over, or its owner has ended) | unknown
--- @requires addresses, locks/named, transaction
return function(tx)
  local args = tx.args
  if not transaction.read_session(tx) then return transaction.reply(tx, 'unknown') end
  local who, lock = addresses.member(tx, args.address or ''), named.lock_of(tx, args.name)
  local record = named.load(tx, lock)
  if named.is_same(record.holder, who, args.nonce) then named.release(tx, lock, record) end
  named.leave(record, who, args.nonce)
  named.save(tx, lock, record)
  return transaction.reply(tx, named.is_same(record.last, who, args.nonce) and 'released' or 'gone')
end
