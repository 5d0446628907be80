-- The audit's checks of one session: its inbox.
--- @requires audit/findings
local session_inbox = {}

-- Counts what the inbox and the list of unread messages hold.
local function count(tx)
  local unread, escalated, strays = 0, 0, {}
  for _, member in ipairs(redis.call('ZRANGE', tx.keys.unread, 0, -1)) do
    local id = tonumber(member:sub(1, 12))
    if id and redis.call('HEXISTS', tx.keys.inbox, id) == 1 then
      unread = unread + 1
      if member:sub(13, 13) == '!' then escalated = escalated + 1 end
    else
      strays[#strays + 1] = member
    end
  end
  return unread, escalated, strays
end

-- Checks that each unread message is stored, and that the counters of unread messages are right.
function session_inbox.check(tx)
  local unread, escalated, strays = count(tx)
  for _, member in ipairs(strays) do
    findings.add(tx, 'message_lost', tx.args.session, 'its unread message ' .. member .. ' is not stored',
      function() redis.call('ZREM', tx.keys.unread, member) end)
  end
  local kept = redis.call('HMGET', tx.keys.session, 'unread', 'escalated')
  if tonumber(kept[1] or 0) ~= unread or tonumber(kept[2] or 0) ~= escalated then
    findings.add(tx, 'inbox_count', tx.args.session, 'it counts ' .. (kept[1] or 0) .. ' unread messages, but has '
      .. unread, function() redis.call('HSET', tx.keys.session, 'unread', unread, 'escalated', escalated) end)
  end
end

return session_inbox
