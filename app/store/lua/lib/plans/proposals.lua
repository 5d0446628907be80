-- Tasks that a child session proposes: stored for the decision of a person, or decided at once by the plan's policy.
--- @requires plans/edits, plans/links, plans/notices, plans/tasks, webhooks
local proposals = {}

local MOST_PROPOSALS = 200

-- Adds a proposed task to the plan. Returns why it is refused.
local function accept(tx, task)
  local copy = cjson.decode(cjson.encode(task))   -- the record of the proposal stays as it is
  local why = edits.add(tx, {task = copy})
  if why then return why end
  why = links.check(tx)
  if not why then return nil end
  tasks.remove(tx, task.id)
  links.check(tx)
  return why
end

-- Stores a proposal, or adds its task at once, by the policy of the plan.
function proposals.add(tx, proposal)
  local head = tasks.head(tx)
  local number = redis.call('HINCRBY', tx.keys.plan, 'proposals', 1)
  if number > MOST_PROPOSALS then return end
  local record = {id = 'p' .. number, task = proposal.task, why = proposal.why, by = tx.args.child, at = tx.now,
    status = 'open'}
  if head.proposals == 'refuse' then
    record.status, record.decided_by = 'refused', 'engine'
  elseif head.proposals == 'accept' then
    local why = accept(tx, proposal.task)
    record.status, record.decided_by, record.note = why and 'refused' or 'accepted', 'engine', why and why.why
  else
    head.proposed = (head.proposed or 0) + 1
    record.until_ms = head.proposal_ms and tx.now + head.proposal_ms or nil
    local asked = 'proposes ' .. record.id .. ', task ' .. record.task.id .. (record.why and ': ' .. record.why or '')
    notices.send(tx, 'proposal', tx.args.child, tasks.load(tx, tx.args.task), asked, true)
  end
  redis.call('HSET', tx.keys.plan, 'proposal:' .. record.id, cjson.encode(record))
  webhooks.enqueue_about_task(tx, 'proposed', tasks.load(tx, tx.args.task), {proposal = record.id,
    proposed = record.task.id, status = record.status})
end

return proposals
