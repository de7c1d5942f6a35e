# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Completion of tidlctl for bash: commands, options, and names that are published right now.

_tidlctl_names() {
	tidlctl "${_tidlctl_socket[@]}" list 2>/dev/null | awk 'NR > 1 { print $1 }'
}

_tidlctl() {
	local current=$2 previous=$3 word command='' i
	local commands='list inspect wait watch rm shutdown help'
	local options='--json --socket --version --help'
	local of_wait='--timeout --newer-than --released' of_watch='--count'
	local _tidlctl_socket=()

	if [ "$previous" = --socket ]; then
		mapfile -t COMPREPLY < <(compgen -f -- "$current")
		return
	fi
	for ((i = 1; i < COMP_CWORD; i++)); do
		word=${COMP_WORDS[i]}
		case $word in
		--socket)
			_tidlctl_socket=(--socket "${COMP_WORDS[i + 1]}")
			((i++))
			;;
		--timeout | --newer-than | --count) ((i++)) ;;
		-*) ;;
		*) command=${command:-$word} ;;
		esac
	done
	case $command in
	'') options="$options $of_wait $of_watch" ;;
	wait) options="$options $of_wait" ;;
	watch) options="$options $of_watch" ;;
	esac
	case $previous in
	--timeout | --newer-than | --count) return ;; # a number
	esac
	case $current in
	-*) mapfile -t COMPREPLY < <(compgen -W "$options" -- "$current") ;;
	*)
		case $command in
		'' | help) mapfile -t COMPREPLY < <(compgen -W "$commands" -- "$current") ;;
		list | inspect | wait | watch | rm)
			mapfile -t COMPREPLY < <(compgen -W "$(_tidlctl_names)" -- "$current")
			;;
		esac
		;;
	esac
}

complete -F _tidlctl tidlctl
