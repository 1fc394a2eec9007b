#!/bin/sh
# judgekit: git's pre-push hook @SUM@
# `judgekit install git` wrote it and renews it, `judgekit uninstall git` takes it out; neither touches one that was edited.
# It stops a push where a blocking gate says so and for nothing else: whatever goes wrong here, the push goes on.

python=@PYTHON@
root=@ROOT@
hooks=${0%/*}
hooks=${hooks%"${hooks##*[!/]}"} # core.hooksPath may end with a slash
before=$hooks/@KEPT@
start='import sys
sys.path.insert(0, sys.argv.pop(1))
from judgekit import programs
del sys.path[0]
programs.run_module("judgekit")'

# A relative or empty entry of PATH names a folder of the repository: nothing is started from there.
given=$PATH
rest=$PATH:
PATH=
while [ -n "$rest" ]; do
	case $rest in
	/*) PATH=${PATH:+$PATH:}${rest%%:*} ;;
	esac
	rest=${rest#*:}
done

judge() {
	# -I: nothing is imported that lies in the repository, or that PYTHONPATH names. Even so, Python looks for
	# its packages beside the program that these two name.
	unset PYTHONEXECUTABLE __PYVENV_LAUNCHER__
	if [ -x "$python" ]; then
		"$python" -I -c "$start" "$root" gate --pre-push "$1" "$2" --blocked-code @BLOCKED@ >&2
	elif command -v judgekit >/dev/null 2>&1; then
		@OWN_PYTHON@
		judgekit gate --pre-push "$1" "$2" --blocked-code @BLOCKED@ >&2
	else
		echo "judgekit: this push is not judged: $python is gone; judgekit install git, run anew, mends it" >&2
	fi
}

# Hooks look at their own name, at what is beside them and at $0.d. So the earlier one is run under its own name,
# in a folder beside this one with links to all that is in here. $1 is that folder, $2 the way from it to here.
link_all() {
	[ ! -h "$1" ] || return
	[ -d "$1" ] || mkdir "$1" || return
	[ -e "$1/.gitignore" ] || echo '*' >"$1/.gitignore" || return
	for each in "$1"/* "$1"/.[!.]*; do
		[ -e "$each" ] || rm -f "$each" # a link to what is gone
	done
	for each in "$hooks"/* "$hooks"/.[!.]*; do
		name=${each##*/}
		case $name in @HOOK@ | @KEPT@ | .gitignore) continue ;; esac
		[ -e "$1/$name" ] || [ ! -e "$each" ] || ln -s "$2/$name" "$1/$name" || [ -e "$1/$name" ] || return
	done
	[ ! "$1/@HOOK@" -ef "$before" ] || return 0
	rm -f "$1/@HOOK@"
	# Some hooks follow links to find their name, so it is no link, unless it was one.
	[ ! -h "$before" ] && ln "$before" "$1/@HOOK@" || ln -s "$2/@KEPT@" "$1/@HOOK@"
}

run_before() {
	folder=$hooks@BESIDE@
	temporary=
	if ! link_all "$folder" "../${hooks##*/}" 2>/dev/null; then
		temporary=$(mktemp -d) && link_all "$temporary" "$(unset CDPATH && cd "$hooks" && pwd)"
		folder=$temporary
	fi
	hook=$folder/@HOOK@
	[ -n "$folder" ] && [ -x "$hook" ] || hook=$before
	PATH=$given JUDGEKIT_HOOK_BEFORE=$before "$hook" "$@"
	code=$?
	[ -z "$temporary" ] || rm -rf "$temporary"
	return $code
}

# The hook that was here before comes first and decides for itself. It is not started again from within itself.
if [ -x "$before" ] && [ "${JUDGEKIT_HOOK_BEFORE:-}" != "$before" ]; then
	lines=$({ cat || command -p cat; } 2>/dev/null; echo .)
	lines=${lines%.}
	printf %s "$lines" 2>/dev/null | run_before "$@" || exit
	printf %s "$lines" 2>/dev/null | judge "$@"
else
	judge "$@"
fi

code=$?
case $code in
@BLOCKED@) exit 1 ;;
0 | 130) ;;
*) echo "judgekit: it ended with code $code and judged nothing; the push goes on (judgekit doctor may say why)" >&2 ;;
esac
exit 0
