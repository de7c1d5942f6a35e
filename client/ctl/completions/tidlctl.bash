# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Completion of tidlctl for bash: commands, options, and names that are published right now.

_tidlctl_names() {
	tidlctl "${_tidlctl_socket[@]}" list 2>/dev/null | awk 'NR > 1 { print $1 }'
}

_tidlctl() {
	local current=$2 previous=$3 word command='' i
	local commands='list inspect wait watch rm shutdown help'
	local options='--json --socket --timeout --newer-than --released --count --version --help'
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
		-*) ;;
		*) command=${command:-$word} ;;
		esac
	done
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
