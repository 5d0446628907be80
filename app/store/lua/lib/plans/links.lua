-- Dependencies between the tasks of a plan: whether they fit together, and which tasks wait for which.
--- @requires plans/tasks
local links = {}

-- The ids of a cycle as text; nil if there is none.
local function find_cycle(all, by_id)
  local mark = {}   -- 1: on the path, 2: done
  local function visit(task, path)
    mark[task.id] = 1
    table.insert(path, task.id)
    for _, id in ipairs(task.deps or {}) do
      if mark[id] == 1 then return table.concat(path, ' -> ') .. ' -> ' .. id end
      local found = not mark[id] and visit(by_id[id], path)
      if found then return found end
    end
    mark[task.id] = 2
    table.remove(path)
  end
  for _, task in ipairs(all) do
    local found = not mark[task.id] and visit(task, {})
    if found then return found end
  end
end

-- Checks the dependencies of all tasks, and notes for each who depends on it. Returns why they are refused.
function links.check(tx)
  local all, by_id = tasks.all(tx), {}
  for _, task in ipairs(all) do by_id[task.id] = task end
  local dependents = {}
  for _, task in ipairs(all) do
    for _, id in ipairs(task.deps or {}) do
      if not by_id[id] then return {id = task.id, why = 'it depends on ' .. id .. ', which is no task of the plan'} end
      dependents[id] = dependents[id] or {}
      table.insert(dependents[id], task.id)
    end
  end
  local cycle = find_cycle(all, by_id)
  if cycle then return {id = all[1].id, why = 'tasks depend on each other in a cycle: ' .. cycle} end
  for _, task in ipairs(all) do
    local now = dependents[task.id]
    if table.concat(task.dependents or {}, ' ') ~= table.concat(now or {}, ' ') then
      task.dependents = now
      tasks.save(tx, task.id)
    end
  end
  if #all == 0 then return {id = '', why = 'the plan would have no task; stop its session instead'} end
end

return links
