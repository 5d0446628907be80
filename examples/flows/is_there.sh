#!/bin/sh
# Decides by a fact: prints exactly one JSON object, as every decision script must.
if [ -e "$1" ]; then echo '{"answer":"yes"}'; else echo '{"answer":"no"}'; fi
