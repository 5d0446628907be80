#!/bin/sh
# Runs the main job on a fresh copy of a small project: red, green, refactor, each with real checkers.
# AGENT=claude (or codex, or a name of your agents.toml) works instead of the scripted doer.
set -eu

examples=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
root=$(dirname -- "$examples")
agent=${AGENT:-}

say() { printf 'demo: %s\n' "$*"; }

if [ -n "$agent" ] && ! command -v "$agent" >/dev/null 2>&1; then
  say "there is no program $agent on this machine; install it, or leave AGENT out for the scripted doer"
  exit 1
fi

if ! python -c 'import pytest' 2>/dev/null; then
  say "installing pytest for the checkers, as requirements-dev.lock pins it"
  pins=$(mktemp)
  awk '/^[a-z]/ {keep = ($1 ~ /^(pytest|iniconfig|pluggy|packaging|pygments)==/)} keep' \
    "$root/requirements-dev.lock" >"$pins"
  python -m pip --disable-pip-version-check install --quiet --no-deps --require-hashes -r "$pins"
  rm -f "$pins"
fi

folder=leadhand-demo
count=1
while [ -e "$folder" ]; do
  count=$((count + 1))
  folder=leadhand-demo-$count
done
cp -R "$examples/project" "$folder"
cd "$folder"
say "a fresh project lies in $folder; $(if [ -n "$agent" ]; then echo "$agent"; else echo 'a scripted doer'; fi) works on it, real checkers judge"
say "(kill it whenever you like, kill -9 too: nothing is forgotten, see below)"

code=0
if [ -n "$agent" ]; then
  leadhand workflow "$examples/tdd.py" --agent "$agent" || code=$?
else
  leadhand workflow "$examples/tdd.py" || code=$?
fi

if [ "$code" -eq 0 ]; then
  say "done: the tests pass, and the code is fit to be read"
else
  say "the run ended with exit code $code: 2 means stopped or left by intent, 3 means not accepted, 1 a fault"
fi
cat <<END

Where the results are
  $PWD/textkit/slug.py and tests/test_slug.py   what the doer made
  $(leadhand status --folder)   every iteration, verdict and event

What to try next
  PATH=$(dirname -- "$(command -v leadhand)"):\$PATH
  cd $PWD
  leadhand ls                         the sessions of this folder
  leadhand logs ID                    what happened, line by line
  leadhand show ID                    each iteration with its verdicts and feedback

Kill it in the middle, and go on
  cp $examples/project/textkit/slug.py textkit/      (undoes the work)
  leadhand spawn "Make the tests of tests/test_slug.py pass" --detach \\
      --doer "python3 $examples/doer.py 10" --checker "pytest tests/"
  kill -9 \$(sed -n 's/.*"pid": \([0-9]*\).*/\1/p' "\$(leadhand status --folder)/run.json")
  leadhand watch ID                   starts the services again: the session goes on where it was
END
exit "$code"
