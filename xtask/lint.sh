#!/bin/sh
# In the place of rustc: compiles tests and programs with the compiler that lints, GILK_LINTS. A library is compiled
# twice, alone and with its tests, and all of it is linted with its tests.
case " $* " in
*" --test "* | *" --crate-type bin "*) exec "$GILK_LINTS" "$@" ;;
esac
exec "$@" -Dwarnings
