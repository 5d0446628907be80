-- The share of a session's work that is done: two counters, of the work that it expects at most, and of that which is
-- done or not needed any more. Work is counted in the weights of steps (`weight`, `size` and `body` of a route). A turn
-- counts the work of its iteration, so that its end covers what did not run. A session whose program was stored
-- before routes had weights counts nothing.
--- @requires addresses, programs, records
local shares = {}

local MOST = 1e15   -- Redis counts whole numbers of 64 bits
local LEAST = 0.1   -- the least share from which the time left is estimated

-- Begins to count the work of a new session.
function shares.begin(tx)
  local size = programs.route(tx, '').size
  if not size then return end
  tx.session.expected, tx.session.covered, tx.session.began = size, 0, tx.now
  redis.call('HSET', tx.keys.session, 'expected', size, 'covered', 0, 'began', tx.clock)
end

-- Adds work to a counter of the session, and to a field of each loop and for_each around a block.
local function add(tx, block, counter, field, amount)
  if tx.session.expected == '' or amount == 0 or math.abs(amount) > MOST then return end
  for _, around in ipairs(addresses.turns_around(block)) do
    local turn = around.id ~= '' and records.load(tx, 'turns', around.id)
    if turn then
      turn[field] = (turn[field] or 0) + amount
      records.save(tx, 'turns', around.id)
    end
  end
  tx.session[counter] = redis.call('HINCRBY', tx.keys.session, counter, string.format('%.0f', amount))
end

-- Counts work in a block that is done, or that is not needed any more.
function shares.cover(tx, block, amount)
  add(tx, block, 'covered', 'covered', amount or 0)
end

-- Counts work in a block that the program did not let expect: another run, a list's items, a raised limit.
function shares.expect(tx, block, amount)
  add(tx, block, 'expected', 'grown', amount or 0)
end

-- Counts what a new turn changes: another run, a limit that is not the program's, iterations that count as done, and
-- the items of a list that an earlier step made.
function shares.open(tx, id, turn)
  local r = id ~= '' and programs.route_of(tx, id)
  if not r or not r.size then return end
  local block = addresses.block_of(id)
  if id:match('~(%d+)$') ~= '1' then shares.expect(tx, block, r.size) end
  if turn.each then
    if r.width < 0 then shares.expect(tx, block, r.weight * (turn.width - 1)) end
    return
  end
  shares.expect(tx, block, (turn.max - r.max) * r.body)
  shares.cover(tx, block, math.max(0, turn.iteration - 1) * r.body)
end

-- The work of an open turn's iteration that has not been counted yet.
local function left_in(turn, size)
  return size + (turn.grown or 0) - (turn.covered or 0)
end

-- Counts the rest of an iteration that is over.
function shares.end_iteration(tx, id, turn)
  local body = programs.route_of(tx, id).body
  if not body then return end
  local left = left_in(turn, body)
  turn.covered, turn.grown = nil, nil
  shares.cover(tx, addresses.block_of(id), left)
end

-- Counts the rest of a turn that closes, with the iterations that it does not need.
function shares.close(tx, id, turn)
  local r = programs.route_of(tx, id)
  if not r.size then return end
  local block = addresses.block_of(id)
  if turn.each then return shares.cover(tx, block, left_in(turn, r.weight * (turn.width or 0))) end
  if turn.max < 1 then return end
  shares.cover(tx, block, left_in(turn, r.body) + (turn.max - turn.iteration) * r.body)
end

-- Counts the time in which a session only waited for a person or a time as no time of its work.
function shares.leave_out_wait(tx, step)
  local waited = step.parked and (step.parked.on == 'human' or step.parked.on == 'wait' or step.parked.on == 'stop')
  if not waited or tx.session.began == '' or redis.call('ZCARD', tx.keys.live) > 1 then return end
  shares.shift(tx, tx.now - (step.since or tx.now))
end

-- Moves the beginning of the work by a time in which nothing was done.
function shares.shift(tx, ms)
  if tx.session.began == '' then return end
  tx.session.began = redis.call('HINCRBY', tx.keys.session, 'began', string.format('%.0f', ms))
end

-- The share that is done, from 0 to 1, and the estimated time of the rest: as long as the work so far took for its
-- share. nil if the session counts none; no time while less than a tenth is done.
function shares.current(tx)
  local expected, covered = tonumber(tx.session.expected), tonumber(tx.session.covered)
  if not expected or expected <= 0 then return nil end
  local done = math.max(0, math.min(1, covered / expected))
  local spent = math.max(0, tx.now - tonumber(tx.session.began))
  local left_ms = done >= LEAST and math.floor(spent * (1 - done) / done) or nil
  return {share = math.floor(done * 10000) / 10000, left_ms = left_ms}
end

return shares
