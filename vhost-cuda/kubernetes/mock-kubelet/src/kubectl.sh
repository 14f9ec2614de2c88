#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
# kubectl get|create|replace --raw PATH [-f - --validate=false], for objects that are files of the folder `objects` beside this one.
set -eu
folder=$(dirname "$0")
name() {
    echo "$folder/objects/$(printf %s "$1" | tr / %)"
}
if [ -e "$folder/down" ]; then
    echo "Unable to connect to the server: connection refused" >&2
    exit 1
fi
file=$(name "$3")
case $1 in
create)
    cat > "$folder/created"
    object=$(sed 's/.*"metadata":{"name":"\([^"]*\)".*/\1/' "$folder/created")
    mv "$folder/created" "$(name "$3/$object")"
    ;;
*)
    if [ ! -e "$file" ]; then
        echo "Error from server (NotFound): \"$3\" not found" >&2
        exit 1
    fi
    case $1 in
    get) cat "$file" ;;
    replace) cat > "$file.new" && mv "$file.new" "$file" ;;
    esac
    ;;
esac
