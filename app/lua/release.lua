-- A worker hands its attempt back, not counted: on drain, on stop, or because the turn ends.
-- A: address, fence, nonce, why, usage?
-- Returns: released | superseded
local address = A.address
local step = session() and load('steps', address)
if not step or step.state ~= 'running' or step.fence ~= A.fence or step.nonce ~= A.nonce then
  return reply('superseded')
end
step.attempt = step.attempt - 1
use_of_attempt(address, step, A.usage)
hand_back(address, step, 'step.released', {why = A.why})
dispatch()
flush()
return reply('released')
