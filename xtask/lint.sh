#!/bin/sh
# In the place of rustc: compiles tests and programs with the compiler that lints, GILK_LINTS. A library is compiled
# twice, alone and with its tests, and all of it is linted with its tests.
case " $* " in
# Those whose optimisation takes longer than it saves when they run: the libraries that do their work have theirs. The
# engine's tests have their own copy of it, which one level less compiles in 50 seconds less, and runs in 25 more.
*" --crate-name "gilk_engine\ *" --test "*) exec "$GILK_LINTS" "$@" -C opt-level=1 ;;
*" --crate-type bin "* | \
    *" --crate-name "gilk_gui\ *" --test "* | \
    *" --crate-name "programs\ *" --test "* | \
    *" --crate-name "timing\ *" --test "*) exec "$GILK_LINTS" "$@" -C opt-level=0 ;;
*" --test "*) exec "$GILK_LINTS" "$@" ;;
esac
exec "$@" -Dwarnings
