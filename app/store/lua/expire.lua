-- Looks at an address that the sweep found in `leases` past its time: an attempt that is lost or overdue, a parked
-- step, or the session itself (the empty address), whose time is used up.
-- Arguments: address, jitter?, gone? (a worker that is known to have ended: its leases are not waited for)
-- Returns: lost | timeout | poison | cancelled | woken | look(child, fence: of a child; neither: of a plan) | alive |
--   gone | spent | default(fence: the question's default is its answer now)
--- @requires addresses, deadlines, dispatch, records, transaction
local EXPIRE = {running = deadlines.expire_running, parked = deadlines.expire_parked}

return function(tx)
  local address = tx.args.address
  local step = transaction.read_session(tx) and records.load(tx, 'steps', address)
  local word
  if address == '' and tx.session.status ~= '' then
    word = deadlines.expire_session(tx)
    if word ~= 'spent' then return transaction.reply(tx, word) end
  elseif not step or not EXPIRE[step.state] then
    redis.call('ZREM', tx.shared.leases, addresses.member(tx, address))
    return transaction.reply(tx, 'gone')
  else
    word = EXPIRE[step.state](tx, address, step)
  end
  dispatch.run(tx)
  transaction.flush(tx)
  return transaction.reply(tx, word)
end
