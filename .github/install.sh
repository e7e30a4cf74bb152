#!/bin/sh
# Installs a release of nugget for people who do not compile.
#
#   sh install.sh OWNER/NAME [VERSION]
#
# downloads the archive for this machine from the releases of that GitHub repository, checks its SHA-256 digest against
# the release's SHA256SUMS, and puts the programs into ~/.local/bin (NUGGET_INSTALL_DIR). NUGGET_DOWNLOAD_URL names another
# place that holds the archive and SHA256SUMS.
set -eu

fail() {
    echo "error: $1" >&2
    exit 1
}

repository=${1:-}
version=${2:-}
folder=${NUGGET_INSTALL_DIR:-$HOME/.local/bin}
url=${NUGGET_DOWNLOAD_URL:-}

case "$(uname -s)-$(uname -m)" in
    Linux-x86_64) target=x86_64-unknown-linux-gnu ;;
    Linux-aarch64 | Linux-arm64) target=aarch64-unknown-linux-gnu ;;
    Darwin-arm64) target=aarch64-apple-darwin ;;
    Darwin-x86_64) target=x86_64-apple-darwin ;;
    *) fail "there is no release for $(uname -s) on $(uname -m); build it with cargo install" ;;
esac

command -v curl >/dev/null || fail "curl is missing"
if command -v sha256sum >/dev/null; then
    digest() { sha256sum "$1" | cut -d' ' -f1; }
elif command -v shasum >/dev/null; then
    digest() { shasum -a 256 "$1" | cut -d' ' -f1; }
else
    fail "neither sha256sum nor shasum is here: the download cannot be checked"
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [ -z "$url" ]; then
    [ -n "$repository" ] || fail "name the repository: sh install.sh OWNER/NAME [VERSION]"
    if [ -n "$version" ]; then
        url="https://github.com/$repository/releases/download/v${version#v}"
    else
        url="https://github.com/$repository/releases/latest/download"
    fi
fi

get() { curl --proto '=https,file' --fail --silent --show-error --location "$1" --output "$2"; }
get "$url/SHA256SUMS" "$work/SHA256SUMS" || fail "cannot get $url/SHA256SUMS"
line=$(grep -m 1 -E "^[0-9a-f]{64}  nugget-[0-9A-Za-z.+-]+-$target\.tar\.gz\$" "$work/SHA256SUMS") ||
    fail "the release has no archive for $target"
archive=${line#*  }
get "$url/$archive" "$work/$archive" || fail "cannot get $url/$archive"
[ "$(digest "$work/$archive")" = "${line%%  *}" ] ||
    fail "the digest of $archive is not the one in SHA256SUMS; nothing was installed"

tar xzf "$work/$archive" -C "$work"
mkdir -p "$folder"
for program in nugget nugget-guard; do
    # A new file that takes the old one's place: a running nugget keeps its own.
    cp "$work/${archive%.tar.gz}/$program" "$folder/.$program.new"
    chmod 755 "$folder/.$program.new"
    mv "$folder/.$program.new" "$folder/$program"
done
echo "installed $("$folder/nugget" --version) as $folder/nugget"
case ":$PATH:" in
    *":$folder:"*) echo "next: nugget init" ;;
    *) echo "next: add $folder to your PATH, then run nugget init" ;;
esac
