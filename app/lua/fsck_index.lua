-- The audit looks at sessions that an index names: whether they are there, and what it says of them.
-- A: list (sessions, status, users, owned), of (a status, program or token), lines, repair
-- Returns: looked(found)
local key = A.of and GLOBAL .. A.list .. ':' .. A.of or GLOBAL .. A.list
local sound = {}
function sound.sessions() return true end
function sound.status(status) return status == A.of end
function sound.owned(status) return AT_WORK[status] end
function sound.users(_, id, root) return redis.call('HGET', base_of(id, root) .. 'session', 'program') == A.of end

local sorted = A.list == 'sessions' or A.list == 'status'
for _, id in ipairs(A.lines) do
  local status, root = session_named(id)
  local is = sorted and redis.call('ZSCORE', key, id) or not sorted and redis.call('SISMEMBER', key, id) == 1
  if is and not (status and sound[A.list](status, id, root)) then
    local name = A.of and A.list .. ' ' .. A.of or A.list
    found('index_stray', id, 'it is ' .. (status or 'gone') .. ', and listed under ' .. name, function()
      redis.call(sorted and 'ZREM' or 'SREM', key, id)
    end)
  end
end
return reply('looked')
