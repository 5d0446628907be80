-- A worker says what came of its attempt: recorded once, and what it releases is released once.
-- A: address, fence, nonce, worker, word, verdict?, reason?, retryable, text?, usage?, expand?, ledger?,
--    digest?, patch?, changed? (of the folder: what it is like now, what changed in it, and before that),
--    take, lease_ms, jitter?, thread? (where its conversation goes on: kept, or nothing),
--    signature? and refused_by? (of a judge: what the iteration came to)
-- Returns: settled | again (failed, tried anew) | repeated | superseded; with grants and hints
local address = A.address
local step = session() and load('steps', address)
if not step or step.fence ~= A.fence or step.nonce ~= A.nonce then return reply('superseded') end
if step.settled == A.fence then
  for _, given in ipairs(step.next or {}) do
    local later = load('steps', given.address)
    if later.state == 'running' and later.fence == given.fence and later.nonce == given.nonce then
      table.insert(answer.grants, terms(given.address, later))
    end
  end
  return reply('repeated')
end
if step.state ~= 'running' then return reply('superseded') end
step.settled = A.fence
use_of_attempt(address, step, A.usage)
write_transcript(address)
keep_work(address)
if A.word == 'failed' then
  fail_attempt(address, step, A.reason, A.retryable, A.text)
else
  keep_thread(address)
  finish(address, step, A.word, A.verdict, A.reason, A.text)
end
dispatch()
for _, given in ipairs(answer.grants) do
  step.next = step.next or {}
  table.insert(step.next, {address = given.address, fence = given.fence, nonce = given.nonce})
end
save('steps', address)
flush()
return reply(step.state == 'ready' and 'again' or 'settled')
