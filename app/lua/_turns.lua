-- Turns: opening blocks, arriving at joins, ending early, closing. All of it may cascade.
local fire, arrive, close_turn

local function open_block(block)
  for _, name in ipairs(route(path_of(block)).roots) do fire(block, name) end
end

-- True for the one arrival that makes the join complete; a repeat changes nothing.
local function joined(join, name, needed)
  if needed <= 1 then return true end
  if redis.call('ZADD', K.arrived, 'NX', 0, join .. '<' .. name) == 0 then return false end
  local low, high = range_of(join .. '<')
  if redis.call('ZLEXCOUNT', K.arrived, low, high) < needed then return false end
  redis.call('ZREMRANGEBYLEX', K.arrived, low, high)
  return true
end

local function open_turn(id, turn)
  turn.state, turn.since = 'open', now
  store('turns', id, turn)
  redis.call('ZADD', K.open, 0, id)
end

-- Whoever resumes a session may raise the ceiling of the loop that reached it; else of the outermost.
local function raised_ceiling(id)
  local meant = A.max_of and path_of(id) == A.max_of or not A.max_of and block_of(id) == ''
  return meant and A.max_iterations or nil
end

local function open_loop(block, name, r, run, left, allowed)
  local id = turn_address(block, name, run)
  if load('turns', id) then return end
  local max = allowed or raised_ceiling(id) or r.max
  if max > 0 and spent_up(0) then return end_spent() end
  open_turn(id, {iteration = math.min(1, max), max = max, left = left or r.retries})
  emit('loop.opened', id, {iteration = math.min(1, max), max = max, label = r.label})
  if max > 0 then return open_block(id .. '[1]') end
  close_turn(id, 'max_iterations', {code = 'max_iterations', text = 'it may not turn at all', at = id})
end

local function open_items(block, name, r, run)
  local id = turn_address(block, name, run)
  if load('turns', id) then return end
  local width = r.width
  if width < 0 then width = tonumber(redis.call('HGET', K.widths, within(block, name)) or 0) end
  open_turn(id, {each = true, width = width})
  for item = 1, width do make_ready(id .. '#' .. item, {}) end
  if width == 0 then close_turn(id, 'accept', {code = 'done'}) end
end

-- What an earlier node of the same transition has ended starts nothing more.
local function ended(block)
  return load('turns', turn_of(block)).state ~= 'open'
end

-- Where the record of a node before it lies: a run that goes on from an older one has not made all itself.
local function home_of(block, name)
  local turn = load('turns', turn_of(block))
  local origin = turn and turn.origin
  if origin and origin.opened == iteration_of(block) and origin.kept[name] then return origin.kept[name] end
  return block
end

-- What a node is given was said by the newest run of a node before it; who was passed over said nothing.
local function is_meant(block, given)
  local home = home_of(block, given.node)
  local step = load('steps', step_address(home, given.node, run_of(home, given.node)))
  return step and step.state == 'succeeded' and step.verdict == given.verdict
end

local function skip_turn(block, name, r, run, reason)
  local id = turn_address(block, name, run)
  if load('turns', id) then return end
  store('turns', id, {state = 'closed', since = now, ended = now, verdict = 'skipped', reason = reason,
    iteration = 0, max = r.max or 0, each = r.each, width = r.each and 0 or nil})
  emit('loop.closed', id, {verdict = 'skipped', iterations = 0, reason = reason})
  arrive(block, name)
end

-- No worker is asked: the node leaves its word, and arrives.
local function skip(block, name, r, run)
  local reason = {code = 'condition', at = within(block, r.given.node),
    text = r.given.node .. ' did not say ' .. r.given.verdict}
  if r.kind == 'loop' or r.each then return skip_turn(block, name, r, run, reason) end
  local address = step_address(block, name, run)
  if load('steps', address) then return end
  store('steps', address, {state = 'skipped', ended = now, reason = reason})
  redis.call('HSET', K.out, address, cjson.encode({word = 'skipped', reason = reason, text = ''}))
  emit('step.settled', address, {word = 'skipped', reason = reason, fence = 0})
  arrive(block, name)
end

function fire(block, name)
  if ended(block) then return end
  local r, run = route(path_of(within(block, name))), run_of(block, name)
  if r.given and not is_meant(block, r.given) then return skip(block, name, r, run) end
  if r.kind == 'loop' then return open_loop(block, name, r, run) end
  if r.each then return open_items(block, name, r, run) end
  local address = step_address(block, name, run)
  if not load('steps', address) then make_ready(address, {}) end
end

local function record_iteration(id, iteration, verdict, reason)
  local entry = ARGV[4]
  if entry == '' or A.ledger ~= id then
    entry = cjson.encode({loop = path_of(id), run = tonumber(id:match('~(%d+)$')),
      iteration = iteration, verdict = verdict, reason = reason, ended_ms = now})
  end
  local turn, told = load('turns', id), entry:sub(1, -2)
  local length = redis.call('RPUSH', K.ledger, told .. used_by(turn))
  if verdict == 'retry' then
    turn.cost_micros, turn.tokens_in, turn.tokens_out = nil, nil, nil
  else   -- the last of its turn: what runs still is counted there too
    turn.entry = {at = length - 1, length = #told}
  end
  save('turns', id)
  count('iterations')
end

-- Whether the loop goes round and nothing changes: its judge signs what the iteration came to.
local function stands_still(id, turn)
  if A.ledger ~= id then return false end
  turn.same = A.signature and (turn.signature == A.signature and turn.same + 1 or 1)
  turn.signature = A.signature
  local most = route(path_of(id)).no_progress
  return most and turn.same and turn.same > most
end

-- Why a loop that may not turn again has ended: what accepts in it is a judge, or a break.
local function out_of_turns(id, turn)
  local r = route(path_of(id))
  local within = 'within ' .. turn.max .. (turn.max == 1 and ' iteration' or ' iterations')
  local text = r.breaks and r.label .. ': no break came ' .. within or 'not accepted ' .. within
  return {code = 'max_iterations', text = text, at = id}
end

local function iteration_done(id, iteration, reason)
  local turn = load('turns', id)
  local still = stands_still(id, turn)
  if iteration < turn.max and spent_up(1) then return end_spent() end
  record_iteration(id, iteration, 'retry', reason)
  if iteration >= turn.max then
    return close_turn(id, 'max_iterations')
  end
  if still then
    local text = 'the same work was refused in the same way ' .. turn.same .. ' times by ' .. A.refused_by
    return close_turn(id, 'terminate', {code = 'no_progress', text = text, at = id})
  end
  turn.iteration = iteration + 1
  save('turns', id)
  emit('loop.iteration', id, {iteration = turn.iteration, max = turn.max})
  open_block(id .. '[' .. turn.iteration .. ']')
end

local function block_done(block)
  local id = turn_of(block)
  if id == '' then return close_turn('', 'accept', {code = 'done'}) end
  iteration_done(id, iteration_of(block))
end

-- A node is done: it arrives at what needs it, and at the end of its block where nothing does.
function arrive(block, name)
  if ended(block) then return end
  local r = route(path_of(within(block, name)))
  for _, next_name in ipairs(r.next) do
    local join = turn_address(block, next_name, run_of(block, next_name))
    if joined(join, name, route(path_of(within(block, next_name))).needs) then
      fire(block, next_name)
    end
  end
  if r.sink and joined(block .. '$', name, route(path_of(block)).sinks) then block_done(block) end
end

local function arrive_item(id, item)
  if joined(id .. '#', item, load('turns', id).width) then close_turn(id, 'accept', {code = 'done'}) end
end

local function cancel(address, step)
  if step.parked and step.parked.child then
    owe('abort', step.parked.child)
    table.insert(answer.abort, step.parked.child)
  end
  withdraw(address)
  if step.waits then give_up_turn(address) end
  free_locks(address)
  step.state, step.ended, step.parked, step.due = 'cancelled', now, nil, nil
  step.lease, step.deadline = nil, nil
  save('steps', address)
  for _, key in ipairs({K.live, K.parked, K.running}) do redis.call('ZREM', key, address) end
  redis.call('ZREM', G.leases, member(address))
  emit('step.cancelled', address)
end

local function cancel_below(turn)
  for _, address in ipairs(redis.call('ZRANGEBYLEX', K.live, below(turn))) do
    local step = load('steps', address)
    if step.state ~= 'running' then cancel(address, step) end
  end
end

-- The turns below one that ends early end with it, an open iteration recorded as it stands.
local function close_below(id, low, high, verdict, reason)
  for _, inner in ipairs(redis.call('ZRANGEBYLEX', K.open, low, high)) do
    local turn = load('turns', inner)
    if inner ~= id then
      if turn.state == 'open' then
        turn.verdict, turn.reason = verdict, reason
        if not turn.each then record_iteration(inner, turn.iteration, verdict, reason) end
      end
      turn.state, turn.ended = 'closed', now
      save('turns', inner)
      redis.call('ZREM', K.open, inner)
      emit('loop.closed', inner, {verdict = turn.verdict, iterations = turn.iteration, reason = turn.reason})
    end
  end
end

local function born_below(turn)
  if turn.id == '' then return redis.call('SMEMBERS', K.children) end
  local found = {}
  for _, line in ipairs(redis.call('ZRANGEBYLEX', K.born, below(turn))) do
    table.insert(found, line:match('<(.*)$'))
  end
  return found
end

-- The children below a turn that ends early end with it, also those that came late; whether some still work.
local function abort_children(turn)
  local working = false
  for _, child in ipairs(born_below(turn)) do
    local status = status_of(child)
    if AT_WORK[status] then working = true end
    if AT_WORK[status] and status ~= 'aborting' or status == 'stopped' then
      owe('abort', child)
      table.insert(answer.abort, child)
    end
  end
  return working
end

local function try_close(id, turn)
  turn.id = id
  if abort_children(turn) then return end
  if redis.call('ZLEXCOUNT', K.running, below(turn)) == 0 then
    close_turn(id, turn.verdict, turn.reason)
  end
end

-- A turn ends before its join is complete: what waits below is cancelled, what runs is told.
function end_turn(id, verdict, reason)
  local turn = load('turns', id)
  if turn.state ~= 'open' then return end
  turn.state, turn.verdict, turn.reason, turn.id = 'closing', verdict, reason, id
  save('turns', id)
  cancel_below(turn)
  local low, high = below(turn)
  close_below(id, low, high, verdict == 'exit' and 'exit' or 'cancelled', reason)
  if id ~= '' and not turn.each then record_iteration(id, turn.iteration, verdict, reason) end
  try_close(id, turn)
end

local function warn(text)
  redis.call('RPUSH', K.warnings, text)
  redis.call('LTRIM', K.warnings, 0, 99)
end

-- Something was passed over: what people call it, where in a loop it stands, and why.
local function warn_of(address, r, how, why)
  local where = block_of(address) ~= '' and ' (' .. address .. ')' or ''
  warn(r.label .. where .. how .. (why and why ~= '' and ': ' .. why or ''))
end

-- A node failed for good, and its block cannot go on without it.
local function fail_block(block, reason)
  local id = turn_of(block)
  if id ~= '' then
    reason = {code = 'failed_step', at = reason.at, beneath = reason,
      text = (reason.at or 'a step') .. ' failed'}
  end
  end_turn(id, 'terminate', reason)
end

-- Ends the session where no stop is left to a stage, or to all of them together.
local function opens_circuit(id, turn, r)
  if block_of(id) ~= '' then return false end
  local code, text = count_stop(name_of(id), r.on_fail == 'continue')
  if not code then return false end
  end_turn('', 'terminate', {code = code, at = id, beneath = turn.reason,
    text = 'no further run of ' .. r.label .. ' is begun: ' .. text})
  return true
end

local function loop_ended(id, turn)
  local block, name = block_of(id), name_of(id)
  local r = route(path_of(id))
  if turn.verdict == 'accept' then return arrive(block, name) end
  if opens_circuit(id, turn, r) then return end
  if r.on_fail == 'retry' and turn.left > 0 then
    local run = count_run(block, name)
    count('phase_retries')
    return open_loop(block, name, r, run, turn.left - 1, turn.max)
  end
  if r.on_fail == 'continue' then
    warn_of(id, r, ' ended with ' .. turn.verdict .. ' and was passed over', turn.reason and turn.reason.text)
    return arrive(block, name)
  end
  fail_block(block, turn.reason)
end

local ENDS = {accept = 'completed', exit = 'exited', abort = 'aborted'}
local end_session

function close_turn(id, verdict, reason)
  local turn = load('turns', id)
  if verdict == 'max_iterations' then reason = reason or out_of_turns(id, turn) end
  turn.state, turn.verdict, turn.reason, turn.ended, turn.id = 'closed', verdict, reason, now, nil
  save('turns', id)
  redis.call('ZREM', K.open, id)
  free_locks_of_turn(id)
  if id == '' then return end_session(ENDS[verdict] or 'failed', reason) end
  redis.call('ZREMRANGEBYLEX', K.arrived, range_of(id .. (turn.each and '#' or '[')))
  emit('loop.closed', id, {verdict = verdict, iterations = turn.iteration, reason = reason})
  if not turn.each then return loop_ended(id, turn) end
  if verdict == 'accept' then return arrive(block_of(id), name_of(id)) end
  fail_block(block_of(id), reason)
end
