-- Tasks that a child session proposes, and edits that the team lead proposes: stored for the decision of a person, or
-- decided at once by the plan's policy.
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

local function store(tx, record, proposed)
  redis.call('HSET', tx.keys.plan, 'proposal:' .. record.id, cjson.encode(record))
  webhooks.enqueue_about_task(tx, 'proposed', tasks.load(tx, tx.args.task), {proposal = record.id,
    proposed = proposed, status = record.status})
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
    local task = tasks.load(tx, tx.args.task)
    record.message = notices.send(tx, 'proposal', tx.args.child, task, asked, true)
  end
  store(tx, record, record.task.id)
end

-- Decides about an edit that the team lead proposes, by the policy of the plan; an accepted one is carried out.
-- Returns the status of the proposal, and why an edit cannot be carried out.
function proposals.decide_edit(tx, operations)
  if tasks.head(tx).proposals ~= 'accept' then return 'open' end
  local why = edits.apply(tx, cjson.decode(cjson.encode(operations)))
  if not why then return 'accepted' end
  tx.plan = nil   -- what was changed in memory is read again
  return 'refused', (why.id ~= '' and 'task ' .. why.id .. ': ' or '') .. why.why
end

-- Records the edit that the team lead proposes about a task. Returns the id of the proposal, or nil if there are too
-- many.
function proposals.add_edit(tx, task, status, note)
  local head, args = tasks.head(tx), tx.args
  local number = redis.call('HINCRBY', tx.keys.plan, 'proposals', 1)
  if number > MOST_PROPOSALS then return nil end
  local record = {id = 'p' .. number, about = task.id, operations = args.operations, edit = args.edit, why = args.why,
    by = args.child, at = tx.now, status = status, note = note, decided_by = status ~= 'open' and 'engine' or nil}
  if status == 'open' then
    head.proposed = (head.proposed or 0) + 1
    record.until_ms = head.proposal_ms and tx.now + head.proposal_ms or nil
  end
  local why = note or args.why
  record.message = notices.send(tx, 'proposal', args.child, task,
    'the team lead proposes ' .. record.id .. ', ' .. status .. (why and ': ' .. why or ''), status ~= 'accepted')
  store(tx, record)
  return record.id
end

return proposals
