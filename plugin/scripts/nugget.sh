#!/bin/sh
# Runs the nugget program. It is searched for in this order: NUGGET_BIN, the plugin's option `binary`, the path
# that `nugget install` wrote to the file `path` beside this script, PATH, ~/.cargo/bin and ~/.local/bin.
# A hook must never fail its session: without the program, the start of a session shows one message, and the
# other hooks do nothing. Nor must the server, whose failure the client would remember: it says how to install nugget.
case $0 in */*) here=${0%/*} ;; *) here=. ;; esac
installed=
[ -r "$here/path" ] && IFS= read -r installed < "$here/path"

# Sets $program; fails if there is none.
find_program() {
  for program in "$NUGGET_BIN" "$CLAUDE_PLUGIN_OPTION_BINARY" "$installed" "$(command -v nugget 2>/dev/null)" \
    "$HOME/.cargo/bin/nugget" "$HOME/.local/bin/nugget"; do
    case $program in /*) ;; *) continue ;; esac
    [ -f "$program" ] && [ -x "$program" ] && return 0
  done
  return 1
}

# Reads $id, $method and $version (of the protocol) from the JSON object in $line, as they are written there; they are
# empty where the object has none. Fails with 1 if the line is no JSON, with 2 if it is JSON but no object.
read_request() {
  id='' method='' version='' name='' value='' want=name depth=0 rest=$line
  while :; do
    text=${rest%%$marks}
    [ "$text" = "$rest" ] && return 1
    rest=${rest#"$text"} after=${rest#?}
    mark=${rest%"$after"} rest=$after
    [ $depth = 1 ] && value=$value$text
    case $mark in
      '"')
        string=
        while :; do
          text=${rest%%$string_marks}
          [ "$text" = "$rest" ] && return 1
          rest=${rest#"$text"}
          case $rest in '"'*) break ;; esac
          after=${rest#??}
          [ "$after" = "$rest" ] && return 1
          string=$string$text${rest%"$after"} rest=$after
        done
        string=$string$text rest=${rest#?}
        case $depth-$want in
          0-*) return 2 ;;
          1-name) name=$string value='' want=value ;;
          1-value) value=$value\"$string\" ;;
          2-*) [ "$name" = params ] && case $last in
              protocolVersion) [ -n "$version" ] || version=$string ;;
            esac
            last=$string ;;
        esac
        ;;
      '{' | '[')
        [ $depth = 0 ] && [ "$mark" = '[' ] && return 2
        [ $depth = 1 ] && value=$value$mark
        depth=$((depth + 1)) last=''
        ;;
      *)
        [ $depth = 0 ] && return 1
        if [ $depth = 1 ]; then
          value=${value#*:}
          value=${value#"${value%%[![:space:]]*}"}
          value=${value%"${value##*[![:space:]]}"}
          case $name in id) id=$value ;; method) method=$value ;; esac
          name='' want=name
        fi
        [ "$mark" = , ] && continue
        depth=$((depth - 1))
        [ $depth = 0 ] && break
        ;;
    esac
  done
  case $rest in *[![:space:]]*) return 1 ;; esac
}

answer() { printf '{"jsonrpc":"2.0","id":%s,%s}\n' "${id:-null}" "$1"; }
refuse() { answer "\"error\":{\"code\":$1,\"message\":\"$2\"}"; }

# An MCP server that says how to install nugget. A batch is refused, as is what is no message.
serve() {
  set -f
  marks='[]["{},]*' string_marks='["\\]*' carriage_return=$(printf '\r')
  while IFS= read -r line || [ -n "$line" ]; do
    line=${line%"$carriage_return"}
    [ -n "$line" ] || continue
    read_request
    case $? in
      1) id='' && refuse -32700 'the line is not a JSON message' && continue ;;
      2) id='' && refuse -32600 'a message is a JSON object' && continue ;;
    esac
    case $id in
      '') case $method in '"'*) continue ;; esac ;;
      \"*\") ;;
      *[!-+.0-9eE]*) id='' method='' ;;
    esac
    case $method in
      '"initialize"')
        case $version in 2024-11-05 | 2025-03-26 | 2025-06-18) ;; *) version=2025-11-25 ;; esac
        answer "\"result\":{\"protocolVersion\":\"$version\",\"capabilities\":{\"tools\":{}},\"serverInfo\":$server,\"instructions\":\"$how\"}"
        ;;
      '"server/discover"')
        answer "\"result\":{\"resultType\":\"complete\",\"supportedVersions\":[\"2024-11-05\",\"2025-03-26\",\"2025-06-18\",\"2025-11-25\",\"2026-07-28\"],\"capabilities\":{\"tools\":{}},\"instructions\":\"$how\",\"ttlMs\":0,\"cacheScope\":\"private\",\"_meta\":{\"io.modelcontextprotocol/serverInfo\":$server}}"
        ;;
      '"ping"') answer '"result":{}' ;;
      '"tools/list"')
        answer "\"result\":{\"resultType\":\"complete\",\"ttlMs\":0,\"cacheScope\":\"private\",\"tools\":[$tool]}"
        ;;
      '"tools/call"')
        text=$how
        find_program && text='nugget is installed now: start a new session to use it.'
        answer "\"result\":{\"resultType\":\"complete\",\"content\":[{\"type\":\"text\",\"text\":\"$text\"}],\"isError\":true}"
        ;;
      '"'*) refuse -32601 'unknown method' ;;
      *) refuse -32600 'not a request' ;;
    esac
  done
}

server='{"name":"nugget","version":"not installed"}'
how='nugget, the memory of earlier sessions, is not installed on this machine: its plugin is here, its program is not. Nothing can be looked up. Tell the developer to install the program (README of the repository that the plugin is from, section Install), or to set NUGGET_BIN to its path, then to run `nugget init` and start a new session.'
tool='{"name":"get_relevant_context","description":"Search the reviewed lessons, decisions, bugs and rules of earlier sessions. Call it first, before planning, debugging or editing code: it takes milliseconds and saves solving a problem twice. Returns quoted passages with unit ids.","inputSchema":{"type":"object","properties":{"task_description":{"type":"string","description":"What you are about to do, naming the libraries, errors and files involved"},"files":{"type":"array","items":{"type":"string"},"description":"Paths of the task"},"budget_tokens":{"type":"integer","description":"Most tokens to return, 100-16000"},"depth":{"enum":["summary","standard","deep"],"description":"How much of each unit"}},"required":["task_description"]},"annotations":{"readOnlyHint":true,"destructiveHint":false,"openWorldHint":false},"_meta":{"anthropic/alwaysLoad":true,"anthropic/maxResultSizeChars":200000}}'

if find_program; then
  # This hook runs at every action, and has a program of its own, which starts faster.
  [ "$1" = guard ] && [ -x "$program-guard" ] && exec "$program-guard"
  exec "$program" "$@"
fi
case $1 in
  serve)
    echo 'nugget: program not found; install it, or set NUGGET_BIN to its path' >&2
    serve
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
