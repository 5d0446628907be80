-- What a child session says of its own task. It is the child's word; its end is the fact.
-- Arguments: task, run, child, status, pr_url?, notes?, proposals? (tasks, each with why?), digest (of the report),
--   key? (of the request, which a repeated one has too)
-- Returns: reported(version) | repeated(version) | conflict (the key had another report) | late(state: of the task) |
--   no_plan
--- @requires dispatch, plans/notices, plans/progress, plans/proposals, plans/tasks, transaction, webhooks
local KEYS_KEPT = 50   -- of a task's last reports

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
  -- The team lead reads the text alone.
  local link = task.pr_url and ' (' .. task.pr_url .. ')' or ''
  local said = args.status .. link .. (args.notes and ': ' .. args.notes or '')
  notices.send(tx, 'report', args.child, task, said, args.status == 'blocked')
  webhooks.enqueue_about_task(tx, 'reported', task)
  for _, proposal in ipairs(args.proposals or {}) do proposals.add(tx, proposal) end
  if args.proposals then
    progress.relist(tx)
    progress.advance(tx)
  end
  tasks.write(tx, 'reported', args.child)
  dispatch.run(tx)
  transaction.flush(tx)
  return transaction.reply(tx, 'reported')
end
