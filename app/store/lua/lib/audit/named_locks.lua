-- The audit's checks of named locks: the hold of each against its record, and when it is looked at again.
--- @requires audit/findings, audit/holders, locks/named
local named_locks = {}

-- Removes a hold that its lock's record does not have. Returns whether it was one.
function named_locks.check_hold(tx, line, lock, one)
  local text = redis.call('HGET', tx.shared.named, lock)
  local holder = text and cjson.decode(text).holder
  if holder and lock .. '<' .. holder.who == line then return false end
  findings.add(tx, 'holder_dead', one.id, line .. ' holds, but its lock does not know of that', function()
    redis.call('SREM', one.base .. 'holding', line)
    redis.call('ZREM', tx.shared.holds, line)
  end)
  return true
end

-- Checks the record of a lock. One whose time is over is freed by the sweep.
function named_locks.check(tx, lock)
  local record = cjson.decode(redis.call('HGET', tx.shared.named, lock))
  local holder = record.holder
  local one = findings.parse(tx, holder and holder.who or '')
  if holder and (not redis.call('ZSCORE', tx.shared.holds, lock .. '<' .. holder.who) or not holders.lives(one)) then
    findings.add(tx, 'holder_dead', one.id, lock .. ' is recorded for ' .. holder.who .. ', which does not hold it',
      function()
        redis.call('SREM', one.base .. 'holding', lock .. '<' .. holder.who)
        redis.call('ZREM', tx.shared.holds, lock .. '<' .. holder.who)
        named.forget(tx, lock)
      end)
  elseif not redis.call('ZSCORE', tx.shared.errands, named.errand_of(lock)) then
    findings.add(tx, 'lock_unwatched', holder and one.id, lock .. ' is not freed when its time is over',
      function() named.save(tx, lock, named.load(tx, lock)) end)
  end
end

return named_locks
