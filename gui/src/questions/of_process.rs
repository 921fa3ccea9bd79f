//! The functions and instruments of questions about a whole process.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use gilk_engine::code::Function;
use gilk_engine::{Image, Session};

use super::question::Question;

/// Maximum number of functions with a counter each: a session has 16,384 words of each CPU.
const MAX_COUNTED: usize = 12_000;
/// Maximum number of functions that are timed: each exit has a patch.
const MAX_TIMED: usize = 3_000;
/// Calls of the C library in which threads wait: for files, sockets, time, other processes, signals, threads and locks.
const WAITING_CALLS: [&str; 70] = [
    "__lll_lock_wait",
    "accept",
    "accept4",
    "clock_nanosleep",
    "close",
    "connect",
    "epoll_pwait",
    "epoll_wait",
    "fcntl",
    "fcntl64",
    "fdatasync",
    "flock",
    "fsync",
    "getrandom",
    "ioctl",
    "lockf",
    "msgrcv",
    "msgsnd",
    "nanosleep",
    "open",
    "open64",
    "openat",
    "openat64",
    "pause",
    "poll",
    "ppoll",
    "pread64",
    "preadv",
    "pselect",
    "pthread_barrier_wait",
    "pthread_cond_clockwait",
    "pthread_cond_timedwait",
    "pthread_cond_wait",
    "pthread_join",
    "pthread_mutex_lock",
    "pthread_mutex_timedlock",
    "pthread_rwlock_rdlock",
    "pthread_rwlock_wrlock",
    "pthread_spin_lock",
    "pthread_timedjoin_np",
    "pwrite64",
    "pwritev",
    "read",
    "readv",
    "recv",
    "recvfrom",
    "recvmmsg",
    "recvmsg",
    "select",
    "sem_clockwait",
    "sem_timedwait",
    "sem_wait",
    "semop",
    "semtimedop",
    "send",
    "sendfile",
    "sendfile64",
    "sendmmsg",
    "sendmsg",
    "sendto",
    "sigsuspend",
    "sigtimedwait",
    "sigwait",
    "sigwaitinfo",
    "splice",
    "wait4",
    "waitid",
    "waitpid",
    "write",
    "writev",
];
/// Functions that allocate memory, with the instruments for them.
const ALLOCATING: [(&str, QuestionInstrument); 3] = [
    ("malloc", ALLOCATIONS),
    ("calloc", ZEROED_ALLOCATIONS),
    ("realloc", REALLOCATIONS),
];
const COUNTER: QuestionInstrument = QuestionInstrument {
    name: "counter",
    source: None,
};
const LONG_CALLS: QuestionInstrument = QuestionInstrument {
    name: "long-calls",
    source: Some(
        "// A program may make millions of short calls in a second, more than can be recorded.\n\
         instrument long-calls \"Samples the time of each call that takes 10,000 ticks or more.\" unit \"ticks\" duration;\n\n\
         call @start;\n\n\
         entry { @start = tsc }\n\
         return / @start != 0 && tsc - @start >= 10000 / { sample(tsc - @start) }\n\
         return / @start != 0 / { @start = 0 }\n",
    ),
};
const ALLOCATIONS: QuestionInstrument = QuestionInstrument {
    name: "allocations",
    source: Some(
        "instrument allocations \"Counts the sizes of blocks, and adds them up by caller.\" unit \"bytes\" count;\n\n\
         entry {\n    @sizes = hist(arg0);\n    @callers[ustack(3)] = sum(arg0);\n}\n",
    ),
};
const ZEROED_ALLOCATIONS: QuestionInstrument = QuestionInstrument {
    name: "zeroed-allocations",
    source: Some(
        "instrument zeroed-allocations \"Counts the sizes of zeroed blocks, and adds them up by caller.\" unit \"bytes\" count;\n\n\
         entry {\n    @sizes = hist(arg0 * arg1);\n    @callers[ustack(3)] = sum(arg0 * arg1);\n}\n",
    ),
};
const REALLOCATIONS: QuestionInstrument = QuestionInstrument {
    name: "reallocations",
    source: Some(
        "instrument reallocations \"Counts the new sizes of blocks, and adds them up by caller.\" unit \"bytes\" count;\n\n\
         entry {\n    @sizes = hist(arg1);\n    @callers[ustack(3)] = sum(arg1);\n}\n",
    ),
};
/// Counts the callers of the function before whose first block it stands. Callers are found by unwind tables, and named with
/// their objects.
pub(super) const CALLERS: QuestionInstrument = QuestionInstrument {
    name: "callers",
    source: Some(
        "instrument callers \"Counts from where the function is called.\" count;\n\n\
         entry { @callers[ustack(2)] = count() }\n",
    ),
};

/// An instrument of a question: one of the library, or with a source of its own.
#[derive(Clone, Copy, Debug)]
pub(super) struct QuestionInstrument {
    pub(super) name: &'static str,
    pub(super) source: Option<&'static str>,
}

impl QuestionInstrument {
    /// Adds its source to a session, if it is not of the library.
    pub(super) fn add_source(self, session: &mut Session) {
        if let Some(text) = self.source {
            let name = self.name.to_owned();
            session.sources.insert(name, text.to_owned());
        }
    }
}

/// The functions before whose first blocks instruments stand.
#[derive(Debug, Default)]
pub(super) struct ChosenFunctions {
    /// Names of functions, each with its instrument.
    pub(super) placed: Vec<(String, QuestionInstrument)>,
    /// The number of functions without one, and an example of the reason, if there are some.
    pub(super) omitted: Option<(usize, String)>,
}

/// Chooses the functions of a question about a whole process; `None` of another question.
pub(super) fn chosen(question: Question, image: &Image) -> Option<ChosenFunctions> {
    match question {
        Question::FrequentFunctions => Some(own(image, COUNTER, MAX_COUNTED)),
        Question::SlowFunctions => Some(own(image, LONG_CALLS, MAX_TIMED)),
        Question::Waits => {
            let named = WAITING_CALLS.map(|name| (name, LONG_CALLS));
            let has_library = library_names(image).into_iter().any(is_c_library);
            // A program that is linked statically has the C library's functions itself.
            let is_searched = |library: &str| match has_library {
                true => is_c_library(library),
                false => library.is_empty(),
            };
            Some(defined(image, &named, is_searched))
        }
        // An allocator may be in any object, also in the program.
        Question::Allocations => Some(defined(image, &ALLOCATING, |_| true)),
        _ => None,
    }
}

/// Chooses the functions of the program, and those of its libraries but for the C library: of more than `most` those of the
/// program, and the largest. A program may have all of its work done by a library of its own.
fn own(image: &Image, instrument: QuestionInstrument, most: usize) -> ChosenFunctions {
    let mut named: BTreeMap<&str, Vec<&Function>> = BTreeMap::new();
    let functions = image.functions().iter();
    for function in functions.filter(|function| is_own(&function.name)) {
        named.entry(&function.name).or_default().push(function);
    }
    // A name that several functions have does not name one.
    let one = named
        .into_values()
        .filter_map(|all| <[&Function; 1]>::try_from(all).ok());
    let mut functions: Vec<&Function> = one.map(|[function]| function).collect();
    functions.sort_by_key(|function| {
        let len_bytes = function.span.start.to(function.span.end);
        (function.name.contains(':'), Reverse(len_bytes))
    });
    let rest = functions.split_off(functions.len().min(most));
    let placed = functions
        .into_iter()
        .map(|function| (function.name.clone(), instrument));
    ChosenFunctions {
        placed: placed.collect(),
        omitted: rest.first().map(|first| {
            let why = format!(
                "{} (there are more than {most} functions, of which the largest are chosen)",
                first.name
            );
            (rest.len(), why)
        }),
    }
}

/// Returns whether a name is that of a function of the program or of a library other than the C library, and not of a part
/// that the compiler has split off or of a stub of the linker.
fn is_own(name: &str) -> bool {
    let (library, function) = name.split_once(':').unwrap_or(("", name));
    let is_system = is_c_library(library) || library.starts_with("ld-") || library.contains("vdso");
    !is_system
        && !function.contains('@')
        && !function.contains(".cold")
        && !function.ends_with(".plt")
}

/// Chooses functions by name in objects by name, "" for the program.
fn defined(
    image: &Image,
    named: &[(&'static str, QuestionInstrument)],
    is_searched: impl Fn(&str) -> bool,
) -> ChosenFunctions {
    let mut entries = BTreeSet::new();
    let mut placed = Vec::new();
    for library in library_names(image)
        .into_iter()
        .filter(|one| is_searched(one))
    {
        for &(name, instrument) in named {
            let name = match library {
                "" => name.to_owned(),
                library => format!("{library}:{name}"),
            };
            // Some functions have several of the names.
            if let Ok(function) = image.function_named(&name)
                && entries.insert(function.span.start)
            {
                placed.push((name, instrument));
            }
        }
    }
    ChosenFunctions {
        placed,
        omitted: None,
    }
}

/// The names of the objects, "" for the program.
fn library_names(image: &Image) -> BTreeSet<&str> {
    let names = image.functions().iter().map(|function| &*function.name);
    names
        .map(|name| name.split_once(':').map_or("", |(library, _)| library))
        .collect()
}

/// Returns whether an object is the C library or its library of threads: of glibc or musl.
fn is_c_library(name: &str) -> bool {
    const BEGINNINGS: [&str; 5] = ["libc.", "libc-", "libpthread.", "libpthread-", "ld-musl"];
    BEGINNINGS.iter().any(|begins| name.starts_with(begins))
}

#[cfg(test)]
mod tests {
    use super::*;
    use gilk_instruments::{Library, Source};

    #[test]
    fn sources_are_formatted_and_named_as_in_the_library() {
        for instrument in [
            LONG_CALLS,
            ALLOCATIONS,
            ZEROED_ALLOCATIONS,
            REALLOCATIONS,
            CALLERS,
        ] {
            let text = instrument.source.unwrap();
            let source = Source::parse(text).unwrap();
            assert_eq!(source.name(), instrument.name);
            let library = Library::builtin().unwrap();
            assert!(library.get(instrument.name).is_err());
        }
        assert!(COUNTER.source.is_none());
    }

    #[test]
    fn the_c_library_is_known_by_its_name() {
        for name in [
            "libc.so.6",
            "libc-2.31.so",
            "libpthread.so.0",
            "ld-musl-x86_64.so.1",
        ] {
            assert!(is_c_library(name));
        }
        for name in ["", "libcrypto.so.3", "libcap.so.2", "ld-linux-x86-64.so.2"] {
            assert!(!is_c_library(name));
        }
    }

    #[test]
    fn parts_and_stubs_and_the_c_library_are_not_counted() {
        for name in [
            "main",
            "parse.constprop.0",
            "libpython3.11.so.1.0:PyList_New",
        ] {
            assert!(is_own(name), "{name}");
        }
        for name in [
            "parse.cold",
            "malloc.plt",
            "libc.so.6:malloc",
            "ld-linux-x86-64.so.2:_dl_open",
            "linux-vdso.so.1:__vdso_gettimeofday",
        ] {
            assert!(!is_own(name), "{name}");
        }
    }
}
