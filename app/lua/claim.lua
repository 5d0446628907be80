-- A worker asks for a step: ready -> running under a new fence, a lease and a hard deadline.
-- A: address, nonce, worker, lease_ms, schema, place
-- Returns: granted(grants) | refused(why; for 'lock': lock) | superseded
local address = A.address
local step = session() and load('steps', address)
if not step then answer.why = 'unknown' return reply('refused') end
if step.nonce == A.nonce then
  if step.state ~= 'running' or step.lease <= now then return reply('superseded') end
  answer.grants = {terms(address, step)}
  return reply('granted')
end
local why
if S.status ~= 'active' then why = 'session ' .. S.status
elseif step.state ~= 'ready' then why = step.state
elseif early(step) then why = 'early'
elseif S.place ~= '' and A.place and A.place ~= S.place then why = 'place'
elseif tonumber(redis.call('HGET', K.session, 'schema')) > A.schema then why = 'schema'
elseif not turns_open(block_of(address)) then why = 'turn closed' end
if why then answer.why = why return reply('refused') end

local r = route(path_of(address))
local lock, again, paced = take_locks(address, r)
if lock then   -- it leaves `ready` for as long as it waits: its slot of the window goes to another
  withdraw(address, true)
  full_for(address, step, r, true)
  redis.call('ZADD', G.ready, again, member(address))
  step.hinted = nil
  save('steps', address)
  look_at_rates(step.waits)
  dispatch()
  flush()
  answer.why, answer.lock = paced and 'rate' or 'lock', lock
  return reply('refused')
end
answer.grants = {grant(address, A.nonce)}
withdraw(address)
dispatch()
flush()
return reply('granted')
