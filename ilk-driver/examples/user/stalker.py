"""Has Frida's Stalker execute the main thread of a process, unchanged, until the process ends."""

import sys
import threading

import frida

SCRIPT = """
const code = new CModule(`
#include <gum/gumstalker.h>
void transform(GumStalkerIterator *iterator, GumStalkerOutput *output, gpointer data) {
    cs_insn *instruction;
    while (gum_stalker_iterator_next(iterator, &instruction))
        gum_stalker_iterator_keep(iterator);
}
`);
Stalker.follow(%d, { transform: code.transform });
send("following");
"""

pid = int(sys.argv[1])
ended = threading.Event()
session = frida.attach(pid)
session.on("detached", lambda *_: ended.set())
script = session.create_script(SCRIPT % pid)
script.on("message", lambda message, _: print(message, flush=True))
script.load()
ended.wait()
