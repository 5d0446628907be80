-- What a child session says of its own task. It is the child's word; its end is the fact.
-- Arguments: task, run, child, status, pr_url?, notes?, proposals? (tasks, each with why?), digest (of the report),
--   key? (of the request, which a repeated one has too)
-- Returns: reported(version) | repeated(version) | conflict (the key had another report) | late(state: of the task) |
--   no_plan
--- @requires dispatch, plans/edits, plans/links, plans/notices, plans/progress, plans/tasks
--- @requires transaction, webhooks
local MOST_PROPOSALS = 200
local KEYS_KEPT = 50   -- of a task's last reports

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
local function propose(tx, proposal)
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

-- The digest of the report that came with a key; nil if the key is new.
local function digest_by_key(tx, kept)
  for _, known in ipairs(kept) do
    if known[1] == tx.args.key then return known[2] end
  end
  return nil
end

local function keep_key(tx, kept)
  table.insert(kept, {tx.args.key, tx.args.digest})
  if #kept > KEYS_KEPT then table.remove(kept, 1) end
  redis.call('HSET', tx.keys.plan, 'keys:' .. tx.args.task, cjson.encode(kept))
end

return function(tx)
  local args = tx.args
  local task = transaction.read_session(tx) and tasks.head(tx) and tasks.load(tx, args.task)
  if not task then return transaction.reply(tx, 'no_plan') end
  local kept = cjson.decode(redis.call('HGET', tx.keys.plan, 'keys:' .. args.task) or '[]')
  tx.reply.version = tonumber(redis.call('HGET', tx.keys.plan, 'version'))
  local digest = digest_by_key(tx, kept)
  if digest then return transaction.reply(tx, digest == args.digest and 'repeated' or 'conflict') end
  local works = task.state == 'starting' or task.state == 'running'
  if not works or task.run ~= args.run or tasks.head(tx).state ~= 'executing' then
    tx.reply.state = task.run ~= args.run and 'superseded' or task.fact or task.state
    return transaction.reply(tx, 'late')
  end
  if args.key then keep_key(tx, kept) end
  if task.word == args.status and task.said == args.digest then return transaction.reply(tx, 'repeated') end
  task.word, task.session, task.said = args.status, args.child, args.digest
  task.pr_url, task.notes = args.pr_url or task.pr_url, args.notes or task.notes
  tasks.note(tx, task, args.status, args.child, args.notes)
  local said = args.status .. (args.notes and ': ' .. args.notes or '')
  notices.send(tx, 'report', args.child, task, said, args.status == 'blocked')
  webhooks.enqueue_about_task(tx, 'reported', task)
  for _, proposal in ipairs(args.proposals or {}) do propose(tx, proposal) end
  if args.proposals then
    progress.relist(tx)
    progress.advance(tx)
  end
  tasks.write(tx, 'reported', args.child)
  dispatch.run(tx)
  transaction.flush(tx)
  return transaction.reply(tx, 'reported')
end
