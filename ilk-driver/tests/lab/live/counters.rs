//! Event counters on a processor without any: they are refused, and a program that assumes them
//! survives.

use gilk_engine::layout::{EventCounter, Events};
use gilk_engine::session::Session;
use gilk_instruments::Library;
use gilk_instruments::program::Event;
use ilk_driver::client::Counted;

use crate::support::{placement, pulsar, shared};

/// The function that serves glibc's `fork`.
const FORK: &str = "__do_sys_clone";
const FORKS: u64 = 160;

/// Samples a counter plus five at every fork; then performs a read that succeeds.
const MISSES: &str = "instrument misses \"Under test.\"; \
    entry { sample(cache_misses + 5); sample(cycles * 2 + tid - curtask->pid) }";

fn session() -> Session {
    let mut session = pulsar(
        6.0,
        500,
        vec![
            placement(FORK, 0, "misses", (0.0, 6.0)),
            placement(FORK, 0, "counter", (0.0, 6.0)),
            placement(FORK, 0, "cache-misses", (0.0, 6.0)),
        ],
    );
    session.sources.insert("misses".into(), MISSES.into());
    session
}

#[test]
#[ignore = "boots the lab; cargo xtask test runs it"]
fn a_missing_event_counter_is_refused_and_harmless_if_assumed() {
    let shared = shared();
    let turn = shared.turn();
    let mut connection = turn.connect();
    let library = Library::builtin().unwrap();
    let layout = connection.info().layout.clone();
    assert_eq!(layout.events.refused.len(), Event::ALL.len(), "{layout:?}");
    let session = session();
    let refused = gilk_engine::plan::plan(&shared.image, &session, &library, &layout)
        .expect_err("QEMU's TCG counts no events")
        .to_string();
    let why = "there is no counter of cache_misses here: the processor or its emulator";
    assert!(refused.contains(why), "{refused}");
    for name in ["cache-misses", "event-totals"] {
        let placements = vec![placement(FORK, 0, name, (0.0, 6.0))];
        let library_only = pulsar(6.0, 500, placements);
        let refused = gilk_engine::plan::plan(&shared.image, &library_only, &library, &layout);
        let refused = refused.expect_err(name).to_string();
        let named = refused.contains(name) && refused.contains("there is no counter of ");
        assert!(named, "{refused}");
    }

    let supposed = [(Event::Cycles, 1 << 30, 48), (Event::CacheMisses, 1, 48)];
    connection.assume_events(Events {
        counters: supposed
            .map(|(event, index, width)| EventCounter {
                event,
                index,
                width,
            })
            .into(),
        refused: Box::default(),
    });
    let outcome = turn.run_over(connection, &session);
    let id = outcome.id(0).pack();
    let own = outcome.samples.iter().filter(|(_, one)| one.id == id);
    let values: Vec<u64> = own.map(|(_, one)| one.value).collect();
    assert_eq!(outcome.total(1), FORKS);
    assert_eq!(values, [5, 0].repeat(FORKS as usize));
    // The library's instrument only samples calls that end on the CPU where they began.
    let of_library = outcome.plan.instruments.iter();
    let of_library = of_library.filter(|one| one.placement == 2);
    let of_library: Vec<u64> = of_library.map(|one| one.id.pack()).collect();
    let sampled = outcome.samples.iter();
    let sampled = sampled.filter(|(_, one)| of_library.contains(&one.id));
    let sampled: Vec<u64> = sampled.map(|(_, one)| one.value).collect();
    assert!(sampled.iter().all(|misses| *misses == 0), "{sampled:?}");
    let calls = sampled.len() as u64;
    assert!(calls > 0 && calls <= FORKS, "{calls}");
    let failed = |placement, instrument: &str, count| Counted {
        placement,
        instrument: instrument.into(),
        count,
    };
    let expected = [
        failed(0, "misses", 2 * FORKS),
        failed(2, "cache-misses", FORKS + calls),
    ];
    assert_eq!(outcome.summary.failed_reads, expected);
    turn.assert_untouched();
}
