-- The sweep found an address in `leases` past its time: a lost or overdue attempt, or a parked step.
-- A: address, jitter?, gone? (a worker that is known to be no more: its lease is not waited for)
-- The address of the session itself is none: its time is over.
-- Returns: lost | timeout | poison | cancelled | woken | look (a child, to be looked at) | alive | gone | spent
local address = A.address
local step = session() and load('steps', address)
if address == '' and S.status ~= '' then
  local due = tonumber(redis.call('HGET', K.session, 'until') or 0)
  if due > now then
    redis.call('ZADD', G.leases, due, member(''))
    return reply('alive')
  end
  stop_clock()
  redis.call('ZREM', G.leases, member(''))
  if due == 0 then return reply('gone') end
  note_use('wall_ms', budget().wall_ms)
  dispatch()
  flush()
  return reply('spent')
end
if not step or (step.state ~= 'running' and step.state ~= 'parked') then
  redis.call('ZREM', G.leases, member(address))
  return reply('gone')
end

local function parked()
  local wait = step.parked
  if wait.until_ms > now then
    redis.call('ZADD', G.leases, wait.until_ms, member(address))
    return 'alive'
  end
  if wait.on == 'child' then
    redis.call('ZADD', G.leases, now + 60000, member(address))
    answer.child, answer.fence = wait.child, step.fence
    return 'look'
  end
  step.answered_by = 'deadline'
  if wait.on == 'wait' then
    finish(address, step, 'succeeded', nil, nil, '')
  else
    local reason = {code = 'deadline', at = address, text = 'nobody answered in time'}
    write_transcript(address)
    finish(address, step, 'failed', nil, reason, '')
  end
  return 'woken'
end

local function running()
  if step.lease > now and (not A.gone or step.owner ~= A.gone) then
    redis.call('ZADD', G.leases, step.lease, member(address))
    return 'alive'
  end
  -- Whoever was heard of no more by then did not take too long, however late that is seen: it was lost.
  if (step.heard or 0) >= step.deadline then
    emit('step.expired', address, {why = 'timeout', fence = step.fence})
    fail_attempt(address, step, {code = 'timeout', at = address,
      text = 'took longer than ' .. route(path_of(address)).timeout_ms / 1000 .. ' s'}, true)
    return 'timeout'
  end
  step.lost = (step.lost or 0) + 1
  tally(address, 'attempts_lost')
  if step.lost > LOST_MAX then
    emit('step.expired', address, {why = 'lost', fence = step.fence})
    finish(address, step, 'failed', nil, {code = 'lost', at = address,
      text = 'its worker was lost ' .. step.lost .. ' times'})
    return 'poison'
  end
  hand_back(address, step, 'step.expired', {why = 'lost'})
  return step.state == 'cancelled' and 'cancelled' or 'lost'
end

local word = step.state == 'parked' and parked() or running()
dispatch()
flush()
return reply(word)
