#!/bin/sh
# In the place of rustc: compiles tests and programs with the compiler that lints, GILK_LINTS. A library is compiled
# twice, alone and with its tests, and all of it is linted with its tests.
case " $* " in
# The engine's tests have their own copy of it, which one level less compiles in 50 seconds less, and runs in 25 more.
*" --crate-name "gilk_engine\ *" --test "*) exec "$GILK_LINTS" "$@" -C opt-level=1 ;;
# Tests that compute more than the libraries that they test.
*" --crate-name "gilk_samples\ *" --test "* | \
    *" --crate-name "gilk_instruments\ *" --test "* | \
    *" --crate-name "cache\ *" --test "* | \
    *" --crate-name "kernel\ *" --test "* | \
    *" --crate-name "objdump\ *" --test "* | \
    *" --crate-name "relocation\ *" --test "*) exec "$GILK_LINTS" "$@" -C opt-level=1 ;;
# All others' optimisation takes longer than it saves when they run: the libraries that do their work have theirs.
*" --crate-type bin "* | *" --test "*) exec "$GILK_LINTS" "$@" -C opt-level=0 ;;
esac
exec "$@" -Dwarnings
