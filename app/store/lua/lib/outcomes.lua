-- Outcomes: the one way in which a step ends.
--- @requires addresses, budgets, cancellation, events, changes, programs, quotas, records, artifacts
--- @requires sessions, steps/retries, steps/shares, children, turn_records, turns, statistics, usage
local outcomes = {}

-- Closes the outermost turn around a block that is ending, if nothing runs below it.
function outcomes.close_around(tx, block)
  local closing
  for _, around in ipairs(addresses.turns_around(block)) do
    local turn = records.load(tx, 'turns', around.id)
    if turn and turn.state == 'closing' then closing = around.id end
  end
  if closing then turns.try_close(tx, closing, records.load(tx, 'turns', closing)) end
end

-- Records the outcome of a step.
local function record(tx, address, step, word, verdict, reason, text)
  local before = step.state
  if step.parked and step.parked.on == 'human' then changes.add(tx, 'answered') end
  step.state, step.verdict, step.reason, step.ended = word, verdict, reason, tx.now
  step.lease, step.deadline, step.parked, step.due, step.failure, step.ending = nil, nil, nil, nil, nil, nil
  step.given = nil
  records.save(tx, 'steps', address)
  retries.leave(tx, address, before)
  if tx.document ~= '' then redis.call('HSET', tx.keys.out, address, tx.document) end
  artifacts.refer(tx, address)
  if tx.document == '' and reason then
    redis.call('HSET', tx.keys.out, address, cjson.encode({word = word, reason = reason, text = reason.text}))
  end
  local used, r = tx.args.usage or {}, programs.route_of(tx, address) or {}
  if not r.before_work then   -- which is no part of the work, and judges nothing
    budgets.note(tx, 'steps', records.count(tx, 'steps'))
    quotas.count_step(tx)
    local counted = address == tx.args.address and tx.args.flaky and 'flaky' or verdict
    if r.action == 'check' then statistics.count_check(tx, step, r, word, counted) end
  end
  events.emit(tx, 'step.settled', address, {word = word, verdict = verdict, reason = reason, text = text,
    fence = step.fence, label = r.label, elapsed_ms = step.since and tx.now - step.since,
    progress = shares.current(tx), cost_usd = used.cost_micros and used.cost_micros / 1000000,
    input_tokens = used.tokens_in, output_tokens = used.tokens_out})
end

-- The code of the reason with which a verdict ends a turn, by the step's action.
local ENDING = {workspace = {accept = 'accepted', terminate = 'terminated'},
  judge = {accept = 'accepted', terminate = 'terminated'},
  ['break'] = {accept = 'break', terminate = 'terminated'}, agent = {terminate = 'terminated'},
  human = {accept = 'accepted'}}
-- The reasons of steps without such a verdict that end their turn: checks of protected files.
local ENDS_LOOP = {tampered = true, checker_down = true}

-- Warns of a failed step that does not end its block.
local function warn_of_failure(tx, address, r, word, reason)
  local ends = r.critical and not records.load(tx, 'steps', address).last
  if word ~= 'failed' or ends or r.action == 'check' then return end
  local ended = r.action == 'child' and reason and reason.text   -- an aborted child has not failed
  local how = ended and ' was passed over' or ' failed and was passed over'
  local failure = address == tx.args.address and tx.args.failure
  events.warn_about(tx, address, r, how, ended or failure or reason and reason.text)
end

-- Releases what an outcome allows: the next nodes, the next iteration, or the end of the turn.
local function release_after(tx, address, step, r, word, verdict, reason)
  local block = addresses.block_of(address)
  local each = address:match('#(%d+)$')
  if word == 'failed' and r.critical then
    local cause = {code = reason and reason.code or 'failed_step', at = address,
      text = reason and reason.text or '', child = reason and reason.child, beneath = reason and reason.beneath}
    return turns.fail_block(tx, block, cause)
  end
  warn_of_failure(tx, address, r, word, reason)
  if tx.args.recheck and word == 'succeeded' and verdict == 'retry' then
    turn_records.request_recheck(tx, addresses.turn_of(block))
  end
  if r.ends == 'iteration' and verdict == 'accept' then   -- no other step of the block runs
    return turns.finish_iteration(tx, addresses.turn_of(block), addresses.iteration_of(block),
      {code = 'condition', at = address, text = 'the rest of the iteration was passed over'})
  end
  local code = verdict and (ENDING[r.action] or {})[verdict]
  if code or ENDS_LOOP[(reason or {}).code] then
    return turns.end_early(tx, addresses.turn_of(block), verdict,
      reason or {code = code, at = address, text = tx.args.text or ''})
  end
  if each then return turns.arrive_item(tx, block, each) end
  turns.arrive(tx, block, addresses.name_of(tx, address))
end

-- Stores the items of a for_each and their number, from the outcome of the step that it needs.
local function expand(tx, node, items)
  redis.call('HSET', tx.keys.widths, node, #items)
  for item, text in ipairs(items) do redis.call('HSET', tx.keys.items, node .. '#' .. item, text) end
end

-- Ends a running or parked step, once, and releases what follows.
function outcomes.finish(tx, address, step, word, verdict, reason, text)
  local block = addresses.block_of(address)
  local open = turn_records.all_open(tx, block) and step.last ~= true   -- one that a stop has started releases nothing
  shares.leave_out_wait(tx, step)
  if open then shares.cover(tx, block, programs.route_of(tx, address).weight) end
  record(tx, address, step, word, verdict, reason, text)
  if word == 'failed' then children.abort_of_attempt(tx, address) end
  for name, items in pairs(tx.args.expand or {}) do expand(tx, addresses.within(block, name), items) end
  local r = programs.route_of(tx, address)
  if open then
    release_after(tx, address, step, r, word, verdict, reason)
  else
    warn_of_failure(tx, address, r, word, reason)   -- a resume counts the step as done
    outcomes.close_around(tx, block)
  end
  sessions.stop_if_idle(tx)
end

-- Ends a failed attempt: with a retry by the step's policy, or with the end of the step.
function outcomes.fail_attempt(tx, address, step, reason, retryable, text)
  if retries.retry_busy(tx, address, step, reason) then return end
  local r = programs.route_of(tx, address)
  step.failed = (step.failed or 0) + 1
  usage.tally(tx, address, 'attempts_failed')
  if not (retryable and step.failed <= r.retries and turn_records.lets_run(tx, address, step)) then
    return outcomes.finish(tx, address, step, 'failed', tx.args.verdict, reason, text)
  end
  step.failure = tx.args.failure or (reason and reason.text)   -- for the next attempt
  step.ending = tx.args.ending
  retries.retry_failed(tx, address, step, reason, r)
end

-- Makes a step ready again whose attempt was handed back and does not count, or cancels it if its turn is ending.
function outcomes.hand_back(tx, address, step, kind, fields)
  fields.fence = step.fence
  events.emit(tx, kind, address, fields)
  if turn_records.lets_run(tx, address, step) then
    retries.make_ready(tx, address, step)
  else
    cancellation.cancel_step(tx, address, step)
    outcomes.close_around(tx, addresses.block_of(address))
  end
  sessions.stop_if_idle(tx)
end

return outcomes
