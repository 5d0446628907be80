-- The steps of a workflow session. Its hash has of each `a:STEP` (order, times and quality attempts, JSON), `o:STEP`
-- (outputs, JSON that is stored as it is) and `n:STEP` (notes).
--- @requires stacks
local workflow_steps = {}

local STEPS_MAX, BYTES_MAX = 1000, 1024 * 1024

-- The record of a step, a new one if there is none; nil if the workflow session has too many.
function workflow_steps.load(tx, id, name)
  local key = stacks.key(tx, id)
  local text = redis.call('HGET', key, 'a:' .. name)
  if text then return cjson.decode(text) end
  local steps = tonumber(redis.call('HGET', key, 'steps') or '0')
  if steps >= STEPS_MAX then return nil end
  return {order = steps + 1, attempts = 0}
end

-- Writes the outputs and the notes of a step; false if the workflow session has too many bytes of them.
function workflow_steps.save_outputs(tx, id, name, outputs, notes)
  local key = stacks.key(tx, id)
  local fields = {'o:' .. name, 'n:' .. name}
  local before = redis.call('HSTRLEN', key, fields[1]) + redis.call('HSTRLEN', key, fields[2])
  local more = #outputs + #(notes or '') - before
  if tonumber(redis.call('HGET', key, 'bytes') or '0') + more > BYTES_MAX then return false end
  redis.call('HINCRBY', key, 'bytes', more)
  redis.call('HSET', key, fields[1], outputs)
  redis.call('HDEL', key, fields[2])
  if notes then redis.call('HSET', key, fields[2], notes) end
  return true
end

-- Writes the record of a step.
function workflow_steps.save(tx, id, name, step)
  local key = stacks.key(tx, id)
  if redis.call('HSET', key, 'a:' .. name, cjson.encode(step)) == 1 then redis.call('HINCRBY', key, 'steps', 1) end
end

return workflow_steps
