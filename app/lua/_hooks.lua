-- Webhooks: what somebody outside asked to be told of. The script that makes it so writes the delivery.
local function rings(event)
  return S.rings:find(event, 1, true) ~= nil
end

-- One delivery, kept with what the session was at that time until it has arrived or is given up.
local function ring(event, status, reason)
  if not rings(event) then return end
  local id = A.session .. '-' .. event .. '-' .. string.format('%d', now)
  redis.call('HSET', K.hooks, id, cjson.encode({event = event, at = now, status = status,
    reason = reason, tries = 0}))
  redis.call('ZADD', G.hooks, now, A.member .. id)
end

-- Once it was told so, no step can begin to wait for something else without having been ready or running.
local function waits_for_people()
  local parked = redis.call('ZCARD', K.parked)
  if parked == 0 or parked < redis.call('ZCARD', K.live) then return false end
  if S.rung ~= '' then return true end
  local at = 0
  repeat
    local part = redis.call('ZRANGE', K.parked, at, at + 99)
    for _, address in ipairs(part) do
      if load('steps', address).parked.on ~= 'human' then return false end
    end
    at = at + #part
  until at >= parked
  return true
end

-- Told once for each time in which all of the session waits for people.
local function ring_if_waiting()
  if not rings('waiting') or S.status ~= 'active' then return end
  local waits = waits_for_people()
  if waits and S.rung == '' then
    ring('waiting', 'waiting')
    redis.call('HSET', K.session, 'rung', now)
  elseif not waits and S.rung ~= '' then
    redis.call('HDEL', K.session, 'rung')
  end
end
