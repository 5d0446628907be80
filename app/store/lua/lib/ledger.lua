-- The ledger: one entry for each iteration that has ended.
--- @requires addresses, records
local ledger = {}

-- Appends an iteration's usage to its entry as text, so that the rest of the JSON stays byte for byte.
local function usage_fields(turn)
  local text = turn.cost_micros and string.format(',"cost_usd":%.6f', turn.cost_micros / 1000000) or ''
  if not (turn.tokens_in or turn.tokens_out) then return text .. '}' end
  return text .. string.format(',"input_tokens":%d,"output_tokens":%d}',
    turn.tokens_in or 0, turn.tokens_out or 0)
end

-- Adds usage that arrives after the turn ended to the entry of its last iteration.
function ledger.amend(tx, entry, turn)
  local text = redis.call('LINDEX', tx.keys.ledger, entry.at)
  redis.call('LSET', tx.keys.ledger, entry.at, text:sub(1, entry.length) .. usage_fields(turn))
end

-- Appends the entry of an iteration. The caller's own entry is used if it is for this turn.
function ledger.append(tx, id, iteration, verdict, reason)
  local entry = tx.entry
  if entry == '' or tx.args.ledger ~= id then
    entry = cjson.encode({address = ('%s[%d]'):format(id, iteration), loop = addresses.path_of(tx, id),
      run = tonumber(id:match('~(%d+)$')), iteration = iteration, verdict = verdict, reason = reason,
      ended_ms = tx.now})
  end
  local turn, text = records.load(tx, 'turns', id), entry:sub(1, -2)
  local length = redis.call('RPUSH', tx.keys.ledger, text .. usage_fields(turn))
  if verdict == 'retry' then
    turn.cost_micros, turn.tokens_in, turn.tokens_out = nil, nil, nil
  else   -- the last of its turn: usage that arrives later is added to it
    turn.entry = {at = length - 1, length = #text}
  end
  records.save(tx, 'turns', id)
  if turn.recheck ~= iteration then records.count(tx, 'iterations') end
end

return ledger
