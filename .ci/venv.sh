#!/usr/bin/env bash
# The virtual environment .venv.
#   bash .ci/venv.sh check PYTHON [asked]    print one line when PYTHON cannot be used, nothing otherwise
#   bash .ci/venv.sh fill PYTHON [asked]     make .venv and install the packages, once
#
# PYTHON is the interpreter for a new .venv; "asked" says that the user named it: it is then checked even when .venv
# exists. A stamp in .venv carries a checksum of constraints.txt and pyproject.toml: as long as it fits, nothing is done.
# An interrupted call leaves no stamp, and the next one completes .venv.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

task=$1
python=$2
asked=${3:-}
venv=.venv/bin/python

# Is `$1` a Python that can be used? It may be a name without a program behind it, or a Python 2.
suits() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

version() {
    "$1" -c 'import sys; sys.stdout.write("%d.%d" % sys.version_info[:2])' 2>/dev/null || true
}

another_python() {
    local other
    for other in python3.12 python3.11 python3.13 python3.14; do
        if suits "$other"; then
            echo " $other is on the PATH, so try: make ${MAKE_GOAL:-test} PYTHON=$other"
            return
        fi
    done
}

problem() {
    if suits "$venv" && [ -z "$asked" ]; then return; fi
    local found
    found=$(version "$python")
    if [ -z "$found" ]; then
        echo "cmlib needs Python 3.11 or newer, and '$python' does not run.$(another_python)"
    elif ! suits "$python"; then
        echo "cmlib needs Python 3.11 or newer, and '$python' is $found.$(another_python)"
    elif suits "$venv" && [ "$(version "$venv")" != "$found" ]; then
        echo "'$python' is $found but .venv was made with $(version "$venv"); to change it, remove the folder .venv first"
    elif ! "$python" -c 'import ensurepip, venv' >/dev/null 2>&1; then
        echo "'$python' has no venv module; on Debian and Ubuntu install the package python$found-venv"
    fi
}

# A package whose installation was cut off has no INSTALLER file: forget it, so that pip installs it anew. Names with
# a tilde are what pip sets aside while it replaces a package.
forget_half_installed() {
    local info
    rm -rf .venv/lib/python*/site-packages/~*
    for info in .venv/lib/python*/site-packages/*.dist-info; do
        if [ -d "$info" ] && [ ! -e "$info/INSTALLER" ]; then rm -rf "$info"; fi
    done
}

fill() {
    local stamp
    stamp=.venv/.stamp-$(cat constraints.txt pyproject.toml | cksum | cut -d ' ' -f 1)
    if [ -e "$stamp" ] && suits "$venv"; then return; fi
    if ! suits "$venv" || ! "$venv" -m pip --version >/dev/null 2>&1; then
        echo "Making .venv with $python ($(version "$python"))"
        "$python" -m venv --clear .venv
    fi
    rm -f .venv/.stamp-*
    forget_half_installed
    echo "Installing the packages into .venv (some minutes the first time)"
    "$venv" -m pip install --quiet --upgrade --constraint constraints.txt pip
    "$venv" -m pip install --quiet --constraint constraints.txt --editable '.[all]'
    touch "$stamp"
}

wrong=$(problem)
if [ "$task" = check ]; then
    echo "$wrong"
elif [ -n "$wrong" ]; then
    echo "$wrong" >&2
    exit 2
else
    fill
fi
