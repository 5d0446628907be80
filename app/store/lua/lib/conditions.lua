-- Conditions: a node with `given` runs if an earlier node of its block gave that verdict. Else it is skipped.
--- @requires addresses, events, programs, records, steps/shares
local conditions = {}

-- The block in which the record of an earlier node is: a resumed run keeps results of the run that it continues.
local function home_of(tx, block, name)
  local turn = records.load(tx, 'turns', addresses.turn_of(block))
  local origin = turn and turn.origin
  if origin and origin.opened == addresses.iteration_of(block) and origin.kept[name] then return origin.kept[name] end
  return block
end

-- Whether the newest run of the earlier node succeeded with the verdict. A skipped node has none.
function conditions.is_met(tx, block, given)
  local home = home_of(tx, block, given.node)
  local run = programs.run_of(tx, home, given.node)
  local step = records.load(tx, 'steps', addresses.step_address(home, given.node, run))
  return step and step.state == 'succeeded' and step.verdict == given.verdict
end

-- Records a loop or for_each as skipped. Returns whether it is new.
local function skip_turn(tx, block, name, r, run, reason)
  local id = addresses.turn_address(block, name, run)
  if records.load(tx, 'turns', id) then return false end
  records.store(tx, 'turns', id, {state = 'closed', since = tx.now, ended = tx.now, verdict = 'skipped',
    reason = reason, iteration = 0, max = r.max or 0, each = r.each, width = r.each and 0 or nil})
  shares.cover(tx, block, r.size)
  events.emit(tx, 'loop.closed', id, {verdict = 'skipped', iterations = 0, reason = reason})
  return true
end

-- Why a node does not run: an earlier node of its block did not give the verdict.
function conditions.reason_of(block, given)
  return {code = 'condition', at = addresses.within(block, given.node),
    text = given.node .. ' did not say ' .. given.verdict}
end

-- Records a step as skipped, without a worker. `work` is its weight.
function conditions.skip_step(tx, address, reason, work)
  records.store(tx, 'steps', address, {state = 'skipped', ended = tx.now, reason = reason})
  shares.cover(tx, addresses.block_of(address), work)
  redis.call('HSET', tx.keys.out, address, cjson.encode({word = 'skipped', reason = reason, text = ''}))
  events.emit(tx, 'step.settled', address, {word = 'skipped', reason = reason, fence = 0})
end

-- Records a node as skipped, without a worker. Returns whether it is new: then the node arrives at its joins.
function conditions.skip(tx, block, name, r, run, reason)
  if r.kind == 'loop' or r.each then return skip_turn(tx, block, name, r, run, reason) end
  local address = addresses.step_address(block, name, run)
  if records.load(tx, 'steps', address) then return false end
  conditions.skip_step(tx, address, reason, r.size)
  return true
end

return conditions
