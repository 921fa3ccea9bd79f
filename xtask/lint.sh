#!/bin/sh
# In the place of rustc: compiles tests and programs with the compiler that lints, GILK_LINTS. A library is compiled
# twice, alone and with its tests, and all of it is linted with its tests.
case " $* " in
# Those whose optimisation takes longer than it saves when they run: the libraries that do their work have theirs.
*" --crate-type bin "* | \
    *" --crate-name "gilk_gui\ *" --test "* | \
    *" --crate-name "programs\ *" --test "* | \
    *" --crate-name "timing\ *" --test "*) exec "$GILK_LINTS" "$@" -C opt-level=0 ;;
*" --test "*) exec "$GILK_LINTS" "$@" ;;
esac
exec "$@" -Dwarnings
