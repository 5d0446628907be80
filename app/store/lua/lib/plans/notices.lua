-- Notices: messages to the team lead, in the inbox of the plan's session.
--- @requires inbox, texts
local notices = {}

local TEXT_MAX = 4000   -- bytes of a notice; the plan has the whole

-- Sends a notice about a task. One that `escalates` calls for a person. Returns the id of the message; nil if the inbox
-- refuses it.
function notices.send(tx, kind, from, task, text, escalates)
  local data = cjson.encode({task = task.id, run = task.run, session = task.session, status = task.word,
    fact = task.fact, pr_url = task.pr_url})
  local id = inbox.add(tx, kind, from, texts.beginning('task ' .. task.id .. ': ' .. text, TEXT_MAX),
    data, escalates)
  return id
end

return notices
