-- Audits steps of one session: their records against the lists that they are in.
-- Arguments: addresses, repair
-- Returns: looked(found) | gone
--- @requires audit/findings, audit/step_lists, records, transaction
return function(tx)
  findings.begin(tx)
  if not transaction.read_session(tx) then return transaction.reply(tx, 'gone') end
  local waiting = step_lists.read_line(tx)
  for _, address in ipairs(tx.args.addresses) do
    local step = records.load(tx, 'steps', address)
    step_lists.check_states(tx, address, step and step.state or 'nowhere')
    if step then
      step_lists.check_times(tx, address, step, waiting)
      step_lists.check_tickets(tx, address, step)
    end
  end
  if tx.args.repair and #tx.reply.found > 0 then transaction.flush(tx) end
  return transaction.reply(tx, 'looked')
end
