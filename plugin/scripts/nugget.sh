#!/bin/sh
# Runs the nugget program. It is searched for in this order: NUGGET_BIN, the plugin's option `binary`, the path
# that `nugget install` wrote to the file `path` beside this script, PATH, ~/.cargo/bin and ~/.local/bin.
# A hook must never fail its session: without the program, the start of a session shows one message, and the
# other hooks do nothing.
here=$(dirname -- "$0")
installed=
[ -r "$here/path" ] && IFS= read -r installed < "$here/path"
for program in "$NUGGET_BIN" "$CLAUDE_PLUGIN_OPTION_BINARY" "$installed" "$(command -v nugget 2>/dev/null)" \
  "$HOME/.cargo/bin/nugget" "$HOME/.local/bin/nugget"; do
  case $program in /*) ;; *) continue ;; esac
  [ -f "$program" ] && [ -x "$program" ] && exec "$program" "$@"
done
case $1 in
  serve)
    echo 'nugget: program not found; install it, or set NUGGET_BIN to its path' >&2
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
