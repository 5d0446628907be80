-- The records of turns (runs of loops and of for_each nodes): opening and reading them, and what limits an iteration.
--- @requires addresses, programs, records, steps/last, steps/shares
local turn_records = {}

-- Writes the record of a new turn.
function turn_records.open(tx, id, turn)
  turn.state, turn.since = 'open', tx.now
  records.store(tx, 'turns', id, turn)
  redis.call('ZADD', tx.keys.open, 0, id)
  shares.open(tx, id, turn)
end

-- Whether each turn around a block lets steps start.
function turn_records.all_open(tx, block)
  for _, around in ipairs(addresses.turns_around(block)) do
    local turn = records.load(tx, 'turns', around.id)
    if not turn or turn.state ~= 'open' then return false end
    if around.iteration > 0 and turn.iteration ~= around.iteration then return false end
  end
  return true
end

-- Whether a step may start or go on: the turns around it let steps start, or it runs at the end of the session.
function turn_records.lets_run(tx, address, step)
  return turn_records.all_open(tx, addresses.block_of(address)) or last.may_run(tx, step)
end

-- The iteration limit that a resume sets: for the loop that it names, else for the outermost loops.
function turn_records.raised_limit(tx, id)
  local named, is_meant = tx.args.max_of, nil
  if named then
    is_meant = addresses.path_of(tx, id) == named
  else
    is_meant = addresses.block_of(id) == ''
  end
  return is_meant and tx.args.max_iterations or nil
end

-- Makes the next iteration of a loop a recheck, once: the checks run again on the same work, and it does not count.
function turn_records.request_recheck(tx, id)
  local turn = records.load(tx, 'turns', id)
  if turn.recheck then return end
  turn.recheck, turn.max = turn.iteration + 1, turn.max + 1
  records.save(tx, 'turns', id)
  shares.expect(tx, addresses.block_of(id), programs.route_of(tx, id).body or 0)
end

-- The iteration of the loop around a step that is a recheck; nil if there is none.
function turn_records.recheck_around(tx, address)
  local turn = records.load(tx, 'turns', addresses.turn_of(addresses.block_of(address)))
  return turn and turn.recheck
end

-- Whether a step is in an iteration whose doer is not started.
function turn_records.is_recheck(tx, address)
  return turn_records.recheck_around(tx, address) == addresses.iteration_of(addresses.block_of(address))
end

-- The limit of the iterations that count.
function turn_records.allowance(turn)
  return turn.max - (turn.recheck and 1 or 0)
end

-- Whether a loop repeats the same result: its judge signs each iteration with a digest of the work. One with a stale
-- verdict does not count.
function turn_records.stagnates(tx, id, turn)
  if tx.args.ledger ~= id or tx.args.recheck then return false end
  turn.same = tx.args.signature and (turn.signature == tx.args.signature and turn.same + 1 or 1)
  turn.signature = tx.args.signature
  local most = programs.route_of(tx, id).no_progress
  return most and turn.same and turn.same > most
end

-- Why a loop ended that repeated the same result.
function turn_records.standstill_reason(tx, id, turn)
  local text = 'the same work was refused in the same way ' .. turn.same .. ' times by ' .. tx.args.refused_by
  return {code = 'no_progress', text = text, at = id}
end

-- Why a loop that reached its iteration limit has ended: without accept by a judge, or without a break.
function turn_records.limit_reason(tx, id, turn)
  local r = programs.route_of(tx, id)
  local max = turn_records.allowance(turn)
  local within = 'within ' .. max .. (max == 1 and ' iteration' or ' iterations')
  local text = r.breaks and r.label .. ': no break came ' .. within or 'not accepted ' .. within
  return {code = 'max_iterations', text = text, at = id}
end

return turn_records
