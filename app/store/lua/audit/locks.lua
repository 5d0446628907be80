-- Audits lines of a list of locks: who holds them and who waits for them.
-- Arguments: list (holds, tickets, called, waits, named), lines, repair
-- Returns: looked(found, called)
--- @requires audit/findings, audit/lock_lists, audit/named_locks, transaction
local READ = {holds = 'ZSCORE', tickets = 'ZSCORE', called = 'HGET', waits = 'HGET', named = 'HGET'}

return function(tx)
  local list = tx.args.list
  findings.begin(tx)
  for _, line in ipairs(tx.args.lines) do
    if redis.call(READ[list], tx.shared[list], line) then
      if list == 'named' then named_locks.check(tx, line) else lock_lists[list](tx, line) end
    end
  end
  return transaction.reply(tx, 'looked')
end
