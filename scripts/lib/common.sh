# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# What the scripts share: where they are, progress with elapsed seconds, logs that show up on failure.
# Sourced, never run. Expects bash with `set -euo pipefail`.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
logs=$root/build/logs
# Used by those who source this.
# shellcheck disable=SC2034
venv=$root/.venv

# say TEXT: one line of progress.
say() {
	printf '%s\n' "$*"
}

# die TEXT...: says what is wrong and what to do, one line each, and ends the script.
die() {
	local line
	for line in "$@"; do
		printf '%s: %s\n' "${0##*/}" "$line" >&2
	done
	exit 1
}

# show_log FILE: the end of a log, where the reason of a failure is.
show_log() {
	printf -- '---- the last lines of %s\n' "${1#"$root"/}" >&2
	tail -n 40 "$1" >&2
	printf -- '----\n' >&2
}

# tick TEXT: shows TEXT with the seconds that pass, on the terminal's line, until it is ended.
tick() {
	local start=$SECONDS
	while printf '\r  %s ... %d s ' "$1" $((SECONDS - start)); do
		sleep 1
	done
}

# run_step NAME TEXT COMMAND...: runs COMMAND with its output in build/logs/NAME.log and shows TEXT with
# the seconds that it took. On failure it shows the log's end and returns the command's status. COMMAND
# runs in the foreground, so that Ctrl-C reaches it.
run_step() {
	local text=$2 start=$SECONDS log=$logs/$1.log ticker="" status=0
	shift 2
	mkdir -p "$logs"
	if [ -t 1 ]; then
		tick "$text" &
		ticker=$!
		# shellcheck disable=SC2064 # the ticker's id as it is now
		trap "kill $ticker 2>/dev/null" EXIT
	else
		printf '  %s ...\n' "$text"
	fi
	"$@" >"$log" 2>&1 </dev/null || status=$?
	if [ -n "$ticker" ]; then
		kill "$ticker" 2>/dev/null || true
		wait "$ticker" 2>/dev/null || true
		trap - EXIT
		printf '\r'
	fi
	if [ "$status" -ne 0 ]; then
		printf '  %s: failed after %d s\n' "$text" $((SECONDS - start))
		show_log "$log"
		return "$status"
	fi
	printf '  %s: done, %d s   \n' "$text" $((SECONDS - start))
}
