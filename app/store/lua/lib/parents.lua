-- The parent of a new session: whether it may start one more child, and the links between the two.
--- @requires budgets
local parents = {}

-- Whether the step that starts a child still runs or executes a plan, in a session that does not stop.
function parents.is_running(parent)
  local text = redis.call('HGET', parent.base .. 'steps', parent.address)
  local step = text and cjson.decode(text)
  local works = step and (step.state == 'running' or step.state == 'parked' and step.parked.on == 'plan')
  return works and step.fence == parent.fence
    and redis.call('HGET', parent.base .. 'session', 'status') == 'active'
end

-- How many sessions are above a session.
local function depth_of(base)
  return tonumber(redis.call('HGET', base .. 'session', 'depth') or 0)
end

local function base_of(tx, session)
  return tx.base:sub(1, -#tx.args.session - 2) .. session .. ':'
end

-- The limit that one more child of a body would exceed, and its value; nil if there is room. Child steps of a program
-- bring no limits: the program bounds their number.
function parents.find_exceeded(tx)
  local parent, most = tx.args.parent, tx.args.limits
  if not most then return nil end
  if depth_of(parent.base) + 1 > most.depth then return 'depth', most.depth end
  if redis.call('SCARD', parent.base .. 'children') >= most.children then return 'children', most.children end
  local below = tonumber(redis.call('HGET', base_of(tx, tx.args.root) .. 'session', 'descendants') or 0)
  if below + 1 >= most.sessions then return 'sessions', most.sessions end   -- the root counts too
end

-- Assigns a child that a later attempt of the same step finds by its key to that attempt. Returns whether it may.
function parents.take_over(tx, child)
  local parent = tx.args.parent
  if not parent or tx.args.fields.on_parent_end ~= 'let-go-on' then return true end
  if not parents.is_running(parent) then return false end
  local key = base_of(tx, child) .. 'session'
  if (redis.call('HGET', key, 'parent') or '') ~= '' then
    redis.call('HSET', key, 'parent', tx.args.fields.parent)
  end
  return true
end

-- The budget of a child: it may use as much as its parent has left, which its usage counts for too.
local function lend(base, budget)
  local allowed = budget ~= '' and cjson.decode(budget) or {}
  local above = redis.call('HGET', base .. 'session', 'budget')
  local most = above and above ~= '' and cjson.decode(above) or {}
  for what, spent in pairs(budgets.spent(base .. 'session')) do
    local left = most[what] and most[what] - spent
    if left then allowed[what] = math.max(1, math.min(left, allowed[what] or left)) end
  end
  return cjson.encode(allowed)
end

-- Links a new session with its parent: adds the fields that it gets from there to its own.
function parents.link(tx)
  local parent, fields = tx.args.parent, tx.args.fields
  fields.depth = parent and depth_of(parent.base) + 1 or 0
  if not parent then return end
  redis.call('SADD', parent.base .. 'children', tx.args.session)
  redis.call('ZADD', parent.base .. 'born', 0, parent.address .. '<' .. tx.args.session)
  local root = base_of(tx, tx.args.root) .. 'session'
  if redis.call('EXISTS', root) == 1 then redis.call('HINCRBY', root, 'descendants', 1) end
  fields.budget = lend(parent.base, fields.budget or '')
  if redis.call('HGET', parent.base .. 'session', 'export') == '1' then fields.export = '1' end  -- a tree is kept whole
end

return parents
