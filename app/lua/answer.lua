-- What a parked step waited for has come: its answer, its time, its child's end. The first one wins.
-- A: address, fence, word, verdict?, reason?, text?, child?, expand?, take, lease_ms
-- Returns: settled | superseded(state, verdict: who won)
local address = A.address
local step = session() and load('steps', address)
if not step then return reply('superseded') end
if step.state ~= 'parked' or step.fence ~= A.fence then
  answer.state, answer.by = step.state, step.answered_by
  return reply('superseded')
end
step.answered_by = A.by
if A.child then use_of_child(A.child, address) end
if reached and A.word == 'failed' then   -- what was lent to the child was all that was left
  A.reason = {code = 'budget', at = address, text = 'its budget is used up: ' .. said(reached),
    beneath = A.reason and A.reason.beneath}
end
write_transcript(address)
finish(address, step, A.word, A.verdict, A.reason, A.text)
dispatch()
flush()
return reply('settled')
