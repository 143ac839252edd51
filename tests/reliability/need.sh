#!/bin/sh
# need.sh COMMANDS PACKAGES: install Debian's packages if a command is missing; without root or apt-get, say which are needed.
for command in $1; do
    command -v "$command" >/dev/null && continue
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        apt-get install --yes --quiet --no-install-recommends $2 || { apt-get update --quiet && apt-get install --yes --quiet --no-install-recommends $2; }
        exit
    fi
    echo "$command is missing; expected Debian's packages $2. They are installed here only as root: apt-get install $2" >&2
    exit 1
done
