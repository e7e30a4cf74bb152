#!/bin/sh
# Finds the program and becomes it. The places, first one that is there: NUGGET_BIN, the plugin's option,
# what `nugget install` has noted beside this file, PATH, and where cargo and people put programs.
# A hook must never fail its session: without the program the session's start is told so, in one line,
# and every other hook is silent.
here=$(dirname -- "$0")
noted=
[ -r "$here/path" ] && IFS= read -r noted < "$here/path"
for program in "$NUGGET_BIN" "$CLAUDE_PLUGIN_OPTION_BINARY" "$noted" "$(command -v nugget 2>/dev/null)" \
  "$HOME/.cargo/bin/nugget" "$HOME/.local/bin/nugget"; do
  case $program in /*) ;; *) continue ;; esac
  [ -f "$program" ] && [ -x "$program" ] && exec "$program" "$@"
done
case $1 in
  serve)
    echo 'nugget: the program is not there; install it, or name it with NUGGET_BIN' >&2
    exit 1
    ;;
  session-start)
    IFS= read -r line
    case $line in
      *'"SessionStart"'*'"compact"'* | *'"PreCompact"'*) ;;
      *) echo '{"systemMessage":"nugget is not installed: this session is not captured. Install the program, or set NUGGET_BIN to its path."}' ;;
    esac
    ;;
esac
exit 0
