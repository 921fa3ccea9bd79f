//! The experiments, and the claims that their figures must satisfy.

use ilk_driver::lab::Accelerator;

use crate::guest::{Arena, Guest};
use crate::table::Tables;
use crate::{How, correlation, coverage, grain, hits, hunt, inlining, many, overhead, web};

/// An experiment.
pub(crate) struct Part {
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    /// Description of the experiment and of its table.
    pub(crate) about: &'static str,
    /// The machine's accelerator.
    pub(crate) accelerator: Accelerator,
    pub(crate) arena: Arena,
    pub(crate) measure: fn(&mut Guest, &mut Tables, &How) -> anyhow::Result<()>,
    /// Claims about its figures, on every kernel and in every run.
    pub(crate) claims: &'static [Claim],
}

/// A claim about figures.
pub(crate) struct Claim {
    /// Words in the title of the tables.
    pub(crate) table: &'static str,
    /// The row or the column.
    pub(crate) of: &'static str,
    pub(crate) holds: fn(f64) -> bool,
    pub(crate) says: &'static str,
}

/// All of them, in the order of the text.
pub(crate) const PARTS: [Part; 9] = [
    Part {
        name: "correlation",
        title: "Correlation: Pulsar's 160 forks, timed by GILK and by the kernel's own tracers at once",
        about: "GILK's report, 4.1, where another tool timed the same events in another run. Here \
                the function tracer, a kprobe event and GILK time each entry of `__x64_sys_clone` in \
                the same run, all by the time stamp counter. The first sample after each of the \
                kernel's events belongs to no other event. GILK's hook executes after theirs, so its \
                time is later by their duration; the largest differences are interrupts in between. \
                Measured on an emulated machine on a busy host. The picture is the report's figure \
                4.4: Pulsar forks in five groups of 32 (the shell's own forks are among the first), \
                sleeps, and collects.",
        accelerator: Accelerator::Emulate,
        arena: Arena::Large,
        measure: correlation::measure,
        claims: &[Claim {
            table: "",
            of: "function tracer: events, each with a sample of its own",
            holds: |events| events == 160.0,
            says: "each fork that the tracer saw has a sample of its own",
        }],
    },
    Part {
        name: "overhead",
        title: "Overhead: guest instructions of a fork, with instruments on every block of copy_process",
        about: "GILK's report, 4.2: the least cost of a fork in six runs of Pulsar, with and without \
                an instrument on every hookable block of the worker. The report measured 295.8 \
                cycles, 0.76 %, for each instrument. Instructions are not cycles, so only the \
                percentages are comparable.",
        accelerator: Accelerator::CountInstructions,
        arena: Arena::Large,
        measure: overhead::measure,
        claims: &[
            Claim {
                table: "",
                of: "counter on every block: added for each instrument, %",
                holds: |percent| percent < 0.76,
                says: "a counter costs less than the report's instruments",
            },
            Claim {
                table: "",
                of: "timestamp on every block: added for each instrument, %",
                holds: |percent| percent < 0.76,
                says: "a sample costs less than the report's instruments",
            },
        ],
    },
    Part {
        name: "hits",
        title: "Probe cost: guest instructions for each hit, above the bare call of __x64_sys_getpid",
        about: "Djprobe's tables 1 and 2: one probe by each of the kernel's mechanisms, and by ilk. \
                [cost.md](cost.md) has the same with an explanation of each line. The last column is \
                of `cargo xtask bench native`: the same patches in user mode, in a chain of eight \
                calls, on the processor that cost.md names; the kernel's own mechanisms do not \
                execute there.",
        accelerator: Accelerator::CountInstructions,
        arena: Arena::OfModule,
        measure: hits::measure,
        claims: &[
            Claim {
                table: "",
                of: "ilk: counter",
                holds: |instructions| instructions <= 3.0,
                says: "a counter is three instructions",
            },
            Claim {
                table: "",
                of: "ilk: sample with time",
                holds: |instructions| instructions <= 24.0,
                says: "a sample with its time is 24 instructions at most",
            },
        ],
    },
    Part {
        name: "grain",
        title: "Fine grain: system calls watched at three grains",
        about: "JIFL's 6.1, figures 8 to 10: guest instructions added to each call of lmbench's \
                table (the least of ten bursts of fifty, of forks of five) by ilk, by ilk when it \
                saves all registers and flags whether live or not, and by kprobes with a counting \
                handler at the same addresses: without optimisation (an int3, or a call of the \
                tracer), and with the jumps that the kernel can install for some. Functions are \
                those that the kernel's tracer sees in the call, including the children's. A kprobe \
                cannot take a sample in so few instructions: where ilk samples, kprobes count. No \
                ratio is given unless ilk adds ten times the difference of two bare calls.",
        accelerator: Accelerator::CountInstructions,
        arena: Arena::Large,
        measure: grain::measure,
        claims: &[
            Claim {
                table: "every block counted",
                of: "times ilk's",
                holds: |times| times >= 100.0,
                says: "kprobes on every block add a hundred times what ilk's counters add, or more",
            },
            Claim {
                table: "",
                of: "times ilk's, optimised",
                holds: |times| times > 1.0,
                says: "kprobes add more than ilk does, optimised or not",
            },
        ],
    },
    Part {
        name: "inlining",
        title: "In the patch or called: what inlining and liveness are worth",
        about: "JIFL's 6.1, where each optimization was switched off: guest instructions added to a \
                call by a counter on every block, as one instruction of the patch, and as a function \
                of an object file (`count-natively` of `instruments/native/example.c`) that each \
                patch calls; with live registers saved, and with all modified ones saved. The last \
                table is of `cargo xtask bench native`, in user mode.",
        accelerator: Accelerator::CountInstructions,
        arena: Arena::Large,
        measure: inlining::measure,
        claims: &[Claim {
            table: "",
            of: "called, times in the patch",
            holds: |times| times > 1.0,
            says: "a counter in the patch costs less than one that is called",
        }],
    },
    Part {
        name: "web",
        title: "A real load: a web server under requests",
        about: "JIFL's 6.2: 200 requests to busybox's httpd for a page of 2,000 bytes over the \
                loopback device, each on a new connection, server and generator on one processor. \
                Instructions per request, user and kernel together. Functions and blocks are those \
                that the function tracer saw in such requests.",
        accelerator: Accelerator::CountInstructions,
        arena: Arena::Large,
        measure: web::measure,
        claims: &[Claim {
            table: "",
            of: "every block counted: throughput, % of that with nothing",
            holds: |percent| percent > 40.0,
            says: "a server whose every block is counted does two fifths of its work, or more",
        }],
    },
    Part {
        name: "hunt",
        title: "A hunt: where a web server's instructions go",
        about: "KernInst's section 4, described in [tour.md](tour.md): the system calls of each \
                request, their cost and that of related work, the blocks of the culprit, and the \
                same after the fix. Busybox's httpd, 200 requests, as above. Each step is a session \
                (hunt-*.ron, here), to be opened in the window or run by `ilk run`. Times are from \
                entry to exit, including waits: accept waits for the client, poll is the agent's \
                own.",
        accelerator: Accelerator::CountInstructions,
        arena: Arena::Large,
        measure: hunt::measure,
        claims: &[Claim {
            table: "",
            of: "throughput, mended, % of before",
            holds: |percent| percent > 102.0,
            says: "the server does more once less is mapped around a fault",
        }],
    },
    Part {
        name: "coverage",
        title: "Coverage: what of three kernels can be hooked, and how",
        about: "Every reachable block, by the cheapest tactic that reaches its start, its end, or \
                any of its instructions, each hook by itself; or by the rule that refuses it. \
                [coverage.md](coverage.md) has the same with all hooks together, and describes the \
                tactics.",
        accelerator: Accelerator::Emulate,
        arena: Arena::Large,
        measure: coverage::measure,
        claims: &[
            Claim {
                table: "",
                of: "pre-hooks: or by a trap only, %",
                holds: |percent| percent < 0.1,
                says: "of a thousand blocks all but one at most can be hooked without a trap",
            },
            Claim {
                table: "",
                of: "post-hooks: or by a trap only, %",
                holds: |percent| percent < 0.2,
                says: "of a thousand ends of blocks all but two at most can be hooked without a trap",
            },
        ],
    },
    Part {
        name: "many",
        title: "Ten thousand functions' inner blocks at once",
        about: "Seconds of an emulated machine to install and to remove counters, and kprobes, at \
                the same addresses.",
        accelerator: Accelerator::Emulate,
        arena: Arena::Large,
        measure: many::measure,
        claims: &[Claim {
            table: "",
            of: "ilk: splices",
            holds: |splices| splices > 0.0,
            says: "there are splices",
        }],
    },
];
