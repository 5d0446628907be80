-- The walk through a program: nodes start, arrive at joins, iterate, end early, close; one may lead to many others.
--- @requires addresses, budgets, cancellation, conditions, events, hints, joins, ledger, locks/locks, programs
--- @requires records, sessions, steps/items, steps/last, steps/shares, steps/skips, children, turn_records
--- @requires statistics
local turns = {}
local STATUS = {accept = 'completed', exit = 'exited', abort = 'aborted'}   -- of a session, by the root's verdict

-- Starts the first nodes of a block.
function turns.open_block(tx, block)
  for _, name in ipairs(programs.route_of(tx, block).roots) do turns.start(tx, block, name) end
end

-- Whether the turn of a block has ended: then nothing more starts in it, also not in the same transition.
local function has_ended(tx, block)
  return records.load(tx, 'turns', addresses.turn_of(block)).state ~= 'open'
end

-- Opens a run of a loop: with `left` retries, and `allowed` iterations if given.
local function open_loop(tx, block, name, r, run, left, allowed)
  local id = addresses.turn_address(block, name, run)
  if records.load(tx, 'turns', id) then return end
  local max = allowed or turn_records.raised_limit(tx, id) or r.max
  if max > 0 and budgets.is_spent(tx, 0) then return turns.end_spent(tx) end
  turn_records.open(tx, id, {iteration = math.min(1, max), max = max, left = left or r.retries})
  events.emit(tx, 'loop.opened', id, {iteration = math.min(1, max), max = max, label = r.label})
  if max > 0 then return turns.open_block(tx, id .. '[1]') end
  turns.close(tx, id, 'max_iterations', {code = 'max_iterations', text = 'it may not turn at all', at = id})
end

-- Opens a run of a for_each: one step for each item.
local function open_items(tx, block, name, r, run)
  local id, turn, first = items.open(tx, block, name, r, run)
  if first == 0 then return turns.close(tx, id, 'accept', {code = 'done'}) end
  for _ = 1, first or 0 do turns.start_item(tx, id, turn) end
end

-- Starts a node that has all that it needs.
function turns.start(tx, block, name)
  if has_ended(tx, block) then return end
  local r, run = programs.route_of(tx, addresses.within(block, name)), programs.run_of(tx, block, name)
  local why = skips.take(tx, addresses.within(block, name))
  if r.given and not conditions.is_met(tx, block, r.given) then why = conditions.reason_of(block, r.given) end
  if why then
    if conditions.skip(tx, block, name, r, run, why) then turns.arrive(tx, block, name) end
    return
  end
  if r.kind == 'loop' then return open_loop(tx, block, name, r, run) end
  if r.each then return open_items(tx, block, name, r, run) end
  local address = addresses.step_address(block, name, run)
  if not records.load(tx, 'steps', address) then hints.make_ready(tx, address, {}) end
end

-- Ends an iteration without accept: opens the next one, or closes the turn.
function turns.finish_iteration(tx, id, iteration, reason)
  local turn = records.load(tx, 'turns', id)
  local still = turn_records.stagnates(tx, id, turn)
  local again = turn.recheck == iteration + 1 or nil   -- which needs no budget of iterations
  local more = not again and (turn.recheck ~= iteration and 1 or 0)
  if iteration < turn.max and budgets.is_spent(tx, more) then return turns.end_spent(tx) end
  ledger.append(tx, id, iteration, 'retry', reason)
  if iteration >= turn.max then return turns.close(tx, id, 'max_iterations') end
  if still then return turns.close(tx, id, 'terminate', turn_records.standstill_reason(tx, id, turn)) end
  shares.end_iteration(tx, id, turn)
  turn.iteration = iteration + 1
  records.save(tx, 'turns', id)
  events.emit(tx, 'loop.iteration', id, {iteration = turn.iteration, max = turn.max, recheck = again})
  turns.open_block(tx, id .. '[' .. turn.iteration .. ']')
end

-- Ends a block whose last nodes have arrived.
local function finish_block(tx, block)
  local id = addresses.turn_of(block)
  if id == '' then return turns.close(tx, '', 'accept', {code = 'done'}) end
  turns.finish_iteration(tx, id, addresses.iteration_of(block))
end

-- A node is done: it arrives at the nodes that need it, and at the end of its block if it is a last one.
function turns.arrive(tx, block, name)
  if has_ended(tx, block) then return end
  local r = programs.route_of(tx, addresses.within(block, name))
  for _, next_name in ipairs(r.next) do
    local join = addresses.turn_address(block, next_name, programs.run_of(tx, block, next_name))
    if joins.arrive(tx, join, name, programs.route_of(tx, addresses.within(block, next_name)).needs) then
      turns.start(tx, block, next_name)
    end
  end
  if r.sink and joins.arrive(tx, block .. '$', name, programs.route_of(tx, block).sinks) then
    finish_block(tx, block)
  end
end

-- An item of a for_each is done; the next one starts if there is a limit of how many run at once.
function turns.arrive_item(tx, id, item)
  local turn = records.load(tx, 'turns', id)
  if joins.arrive(tx, id .. '#', item, turn.width) then return turns.close(tx, id, 'accept', {code = 'done'}) end
  return turns.start_item(tx, id, turn)
end

-- Starts the next item of a for_each, if there is one. Tail calls: a user may skip all items.
function turns.start_item(tx, id, turn)
  local skipped = items.start_next(tx, id, turn)
  if skipped then return turns.arrive_item(tx, id, skipped) end
end

-- Closes a turn that is ending, once no child and no step runs below it, and the last steps have ended.
function turns.try_close(tx, id, turn)
  turn.id = id
  if children.abort_below(tx, turn, last.has_child) then return end
  if redis.call('ZLEXCOUNT', tx.keys.running, addresses.range_below(turn)) > 0 then return end
  if id == '' and turn.verdict ~= 'abort' and last.run(tx, last.is_failure(turn)) then return end
  turns.close(tx, id, turn.verdict, turn.reason)
end

-- Ends a turn before its join is complete: cancels waiting steps below, and running ones learn it by their heartbeat.
function turns.end_early(tx, id, verdict, reason)
  local turn = records.load(tx, 'turns', id)
  if turn.state ~= 'open' then return end
  turn.state, turn.verdict, turn.reason, turn.id = 'closing', verdict, reason, id
  records.save(tx, 'turns', id)
  cancellation.cancel_below(tx, turn)
  local low, high = addresses.range_below(turn)
  cancellation.close_below(tx, id, low, high, verdict == 'exit' and 'exit' or 'cancelled', reason)
  if id ~= '' and not turn.each then ledger.append(tx, id, turn.iteration, verdict, reason) end
  turns.try_close(tx, id, turn)
end

-- Ends the turn of a block that cannot continue: a node failed for good. A loop that reached its iteration limit
-- passes that verdict to the loops around it.
function turns.fail_block(tx, block, reason, verdict)
  local id, is_capped = addresses.turn_of(block), verdict == 'max_iterations'
  if id ~= '' then
    local text = (reason.at or 'a step') .. (is_capped and ' reached its limit of iterations' or ' failed')
    reason = {code = 'failed_step', at = reason.at, beneath = reason, text = text}
  end
  turns.end_early(tx, id, is_capped and verdict or 'terminate', reason)
end

-- Ends the session if no stop is left for a stage, or for all stages together. Returns whether it did.
local function opens_circuit(tx, id, turn, r)
  if addresses.block_of(id) ~= '' then return false end
  local code, text = budgets.count_stop(tx, addresses.name_of(tx, id), r.on_fail == 'continue')
  if not code then return false end
  turns.end_early(tx, '', 'terminate', {code = code, at = id, beneath = turn.reason,
    text = 'no further run of ' .. r.label .. ' is begun: ' .. text})
  return true
end

-- Continues behind a loop that has closed: the next node, a retry, or a failure.
local function follow_loop(tx, id, turn)
  local block, name = addresses.block_of(id), addresses.name_of(tx, id)
  local r = programs.route_of(tx, id)
  if turn.verdict == 'accept' then return turns.arrive(tx, block, name) end
  if opens_circuit(tx, id, turn, r) then return end
  if r.on_fail == 'retry' and turn.left > 0 then
    local run = programs.start_run(tx, block, name)
    records.count(tx, 'phase_retries')
    return open_loop(tx, block, name, r, run, turn.left - 1, turn_records.allowance(turn))
  end
  if r.on_fail == 'continue' then
    local how = ' ended with ' .. turn.verdict .. ' and was passed over'
    events.warn_about(tx, id, r, how, turn.reason and turn.reason.text)
    return turns.arrive(tx, block, name)
  end
  turns.fail_block(tx, block, turn.reason, turn.verdict)
end

-- Closes a turn. Closing the root ends the session.
function turns.close(tx, id, verdict, reason)
  local turn = records.load(tx, 'turns', id)
  if verdict == 'max_iterations' then reason = reason or turn_records.limit_reason(tx, id, turn) end
  turn.state, turn.verdict, turn.reason, turn.ended, turn.id = 'closed', verdict, reason, tx.now, nil
  records.save(tx, 'turns', id)
  redis.call('ZREM', tx.keys.open, id)
  locks.release_turn(tx, id)
  if id == '' then return sessions.finish(tx, STATUS[verdict] or 'failed', reason) end
  shares.close(tx, id, turn)
  redis.call('ZREMRANGEBYLEX', tx.keys.arrived, addresses.range_of(id .. (turn.each and '#' or '[')))
  events.emit(tx, 'loop.closed', id, {verdict = verdict, iterations = turn.iteration, reason = reason})
  if not turn.each then statistics.count_loop(tx, id, turn) end
  if (reason or {}).code == 'tampered' then return turns.end_early(tx, '', 'terminate', reason) end
  if not turn.each then return follow_loop(tx, id, turn) end
  if verdict == 'accept' then return turns.arrive(tx, addresses.block_of(id), addresses.name_of(tx, id)) end
  turns.fail_block(tx, addresses.block_of(id), reason)
end

-- Ends the session because a budget is reached.
function turns.end_spent(tx)
  if records.load(tx, 'turns', '').state ~= 'open' then return end
  turns.end_early(tx, '', 'terminate',
    {code = 'budget', at = '', text = 'its budget is used up: ' .. budgets.describe(tx.reached)})
end

-- Ends an active session whose budget was reached in this transition.
function turns.end_if_spent(tx)
  if tx.reached and tx.session.status == 'active' then turns.end_spent(tx) end
end

return turns
