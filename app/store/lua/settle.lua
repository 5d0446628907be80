-- Records the outcome of an attempt, once, and releases what it allows.
-- Arguments: address, fence, nonce, worker, word, verdict?, reason?, retryable, failure?, text?, usage?, expand?,
--   ledger? (the turn of the caller's ledger entry), digest?, patch?, changed? (of the folder: its state, what the
--   attempt changed, and whether it had changed before), work? (the state to judge and commit), owner? (the keys of
--   the session that has the folder to itself, if that is another one), busy? and jitter? (of a retry), ending? (of a
--   failed attempt, for the next one), warning? (of the session), take (nonces for further grants), lease_ms, thread?
--   (where its conversation continues), signature? and refused_by? (of a judge: a digest of the iteration's result),
--   flaky? (of a check), artifacts? (of the outcome: name, digest, size, media_type), recheck? (of a judge: its
--   verdict is stale, so the next iteration is a recheck)
-- Document: the outcome. Entry: of the ledger. Records: of the transcript.
-- Returns: settled | again (it is retried) | repeated | superseded; with grants and hints
--- @requires attempts, deadlines, dispatch, events, inbox, outcomes, records, transaction, transcript, usage
--- @requires work_diffs
return function(tx)
  local args = tx.args
  local address = args.address
  local step = transaction.read_session(tx) and records.load(tx, 'steps', address)
  if not step or step.fence ~= args.fence or step.nonce ~= args.nonce then
    return transaction.reply(tx, 'superseded')
  end
  if step.settled == args.fence then
    for _, given in ipairs(step.next or {}) do
      local later = records.load(tx, 'steps', given.address)
      if later.state == 'running' and later.fence == given.fence and later.nonce == given.nonce then
        table.insert(tx.reply.grants, attempts.terms(tx, given.address, later))
      end
    end
    return transaction.reply(tx, 'repeated')
  end
  if step.state ~= 'running' then return transaction.reply(tx, 'superseded') end
  if deadlines.is_overdue(tx, step) then usage.add_attempt(tx, address, step, args.usage) end
  local late = deadlines.refuse(tx, address, step, 'superseded')
  if late then return late end
  step.settled = args.fence
  usage.add_attempt(tx, address, step, args.usage)
  transcript.write(tx, address)
  work_diffs.keep(tx, address)
  if step.given and args.word == 'succeeded' and args.digest then work_diffs.bind(tx) end
  if args.warning then events.warn(tx, args.warning) end
  if args.word == 'failed' then
    outcomes.fail_attempt(tx, address, step, args.reason, args.retryable, args.text)
  else
    transcript.keep_thread(tx, address)
    if args.word == 'succeeded' then inbox.settle(tx, address) end
    outcomes.finish(tx, address, step, args.word, args.verdict, args.reason, args.text)
  end
  dispatch.run(tx)
  for _, given in ipairs(tx.reply.grants) do
    step.next = step.next or {}
    table.insert(step.next, {address = given.address, fence = given.fence, nonce = given.nonce})
  end
  records.save(tx, 'steps', address)
  transaction.flush(tx)
  return transaction.reply(tx, step.state == 'ready' and 'again' or 'settled')
end
