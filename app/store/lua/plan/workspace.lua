-- Records what a worker did with the folder of a task's run: made it, removed it, left it
-- and why, or merged its work.
-- Arguments: task, run, folder?, branch?, base?, cleaned?, kept? (why it was left), merged?, tip?, into?
-- Returns: recorded(version) | repeated | no_plan
--- @requires plans/tasks, transaction
local FIELDS = {'folder', 'branch', 'base', 'cleaned', 'kept', 'merged', 'tip', 'into'}

local function write(record, args)
  local changed = false
  for _, name in ipairs(FIELDS) do
    local value = args[name]
    if value ~= nil and record[name] ~= value then record[name], changed = value, true end
  end
  if args.cleaned and record.kept then record.kept, changed = nil, true end
  return changed
end

return function(tx)
  local args = tx.args
  local task = transaction.read_session(tx) and tasks.head(tx) and tasks.load(tx, args.task)
  if not task then return transaction.reply(tx, 'no_plan') end
  local changed = false
  for _, run in ipairs(task.runs or {}) do
    if run.run == args.run then changed = write(run, args) end
  end
  -- Until its creation is recorded, a run has no entry of its own.
  if task.run == args.run then changed = write(task, args) or changed end
  if not changed then return transaction.reply(tx, 'repeated') end
  tasks.save(tx, args.task)
  tasks.write(tx, 'workspace', 'engine')
  transaction.flush(tx)
  return transaction.reply(tx, 'recorded')
end
