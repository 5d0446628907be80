-- Statistics of a day (UTC): the ends of sessions, loops and checks, and what attempts used. Each is counted in the
-- transition that records it, so it counts exactly once.
--
-- A row is a JSON list, its kind and the values that it is counted by; a field is the name of a counter and the row.
--- @requires programs, texts
local statistics = {}

local DAY_MS = 86400000
local KEPT_S = 400 * 86400
local MOST_FIELDS = 4000     -- of a day: about 1,000 rows; later names are counted as `other`
local NAME_BYTES = 120
local MOST_ITERATIONS = 100  -- further iterations are counted as this one

-- A name as a value of a row.
local function name_of(text)
  return texts.beginning(type(text) == 'string' and text or '', NAME_BYTES)
end

-- Adds to the counters of a row. `named` is the position of its value that may have any number of names.
local function count(tx, row, named, counters)
  local key = tx.prefix .. 'stats:' .. math.floor(tx.now / DAY_MS)
  local text = cjson.encode(row)
  if redis.call('HEXISTS', key, 'n' .. text) == 0 then
    if redis.call('HLEN', key) >= MOST_FIELDS then
      row[named] = 'other'
      text = cjson.encode(row)
    end
    redis.call('HSET', key, 'at', tx.now)
    redis.call('EXPIRE', key, KEPT_S)
  end
  redis.call('HINCRBY', key, 'n' .. text, 1)
  for counter, by in pairs(counters) do
    if by > 0 then redis.call('HINCRBY', key, counter .. text, by) end
  end
end

-- The kind of the session, and the name of its flow or workflow: tasks and plans are not counted by name.
local function kind_of(tx)
  local values = redis.call('HMGET', tx.keys.session, 'kind', 'name')
  local has_name = values[1] == 'flow' or values[1] == 'workflow' or values[1] == 'graph'
  return values[1] or '', has_name and name_of(values[2]) or ''
end

-- Counts the end of the session. One that failed, was resumed and ends again counts again.
function statistics.count_session(tx, status, reason)
  local kind, name = kind_of(tx)
  local created = tonumber(redis.call('HGET', tx.keys.session, 'created') or tx.now)
  count(tx, {'session', kind, name, status, reason and reason.code or ''}, 3, {ms = tx.now - created})
end

-- Counts the end of a run of a loop, by its doer's agent, its verdict and the iteration in which it came.
function statistics.count_loop(tx, id, turn)
  local by = name_of(programs.route_of(tx, id).by)
  local iterations = math.min(turn.iteration, MOST_ITERATIONS)
  count(tx, {'loop', by, turn.verdict, iterations}, 2, {ms = tx.now - turn.since})
end

-- Counts the outcome of a check, by its checker and verdict; without a verdict, by how it ended.
function statistics.count_check(tx, step, route, word, verdict)
  count(tx, {'check', name_of(route.label), verdict or word}, 2, {ms = tx.now - (step.since or tx.now)})
end

-- Counts what an attempt used since its last report, by the agent.
function statistics.count_usage(tx, address, more)
  local kind = redis.call('HGET', tx.keys.session, 'kind') or ''
  count(tx, {'usage', kind, name_of(programs.route_of(tx, address).by)}, 3, more)
end

return statistics
