-- Notices: messages to the team lead, in the inbox of the plan's session.
--- @requires inbox
local notices = {}

local TEXT_MAX = 4000   -- of a notice; the plan has the whole

-- Sends a notice about a task. One that `escalates` calls for a person.
function notices.send(tx, kind, from, task, text, escalates)
  local data = cjson.encode({task = task.id, run = task.run, session = task.session, status = task.word,
    fact = task.fact, pr_url = task.pr_url})
  inbox.add(tx, kind, from, ('task ' .. task.id .. ': ' .. text):sub(1, TEXT_MAX), data, escalates)
end

return notices
