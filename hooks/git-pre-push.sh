#!/bin/sh
# judgekit: git's pre-push hook @SUM@
# `judgekit install git` wrote it and renews it, `judgekit uninstall git` takes it out; neither touches one that was edited.
# It stops a push where a blocking gate says so and for nothing else: whatever goes wrong here, the push goes on.

python=@PYTHON@
root=@ROOT@
before=${0%/*}/@KEPT@
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

# The hook that was here before comes first and decides for itself. It is not started again from within itself.
if [ -x "$before" ] && [ "${JUDGEKIT_HOOK_BEFORE:-}" != "$before" ]; then
	lines=$({ cat || command -p cat; } 2>/dev/null; echo .)
	lines=${lines%.}
	printf %s "$lines" 2>/dev/null | PATH=$given JUDGEKIT_HOOK_BEFORE=$before "$before" "$@" || exit
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
