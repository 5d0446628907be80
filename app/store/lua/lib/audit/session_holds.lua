-- The audit's checks of one session: the holds that it notes, and its webhooks.
--- @requires audit/findings
local session_holds = {}

-- Checks that each noted hold and webhook is in its list.
function session_holds.check(tx)
  for _, held in ipairs(redis.call('SMEMBERS', tx.keys.holding)) do
    if not redis.call('ZSCORE', tx.shared.holds, held) then
      findings.add(tx, 'hold_stray', tx.args.session, 'it records a lock that it does not hold: ' .. held,
        function() redis.call('SREM', tx.keys.holding, held) end)
    end
  end
  for _, id in ipairs(redis.call('HKEYS', tx.keys.hooks)) do
    if not redis.call('ZSCORE', tx.shared.hooks, tx.args.member .. id) then
      findings.add(tx, 'webhook_lost', tx.args.session, id .. ' is not delivered yet, and no retry is scheduled',
        function() redis.call('ZADD', tx.shared.hooks, tx.now, tx.args.member .. id) end)
    end
  end
end

return session_holds
