//! Properties of the protocol: messages round-trip, and invalid bytes do no harm.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a panic is a test's failure"
)]

use gilk_engine::layout::{CounterBank, EventCounter, Events, RuntimeLayout, SegmentOffset};
use gilk_engine::placement::Style;
use gilk_engine::{Addr, HookType, Span};
use gilk_instruments::program::Event;
use ilk_driver::protocol::{
    Bytes, Collection, CpuLosses, Decoder, Finished, Holder, Incoming, Interval, MAGIC, MAX_FRAME,
    MAX_ITEMS, MAX_NAME, Message, NumberedStack, OPENING_BYTES, ObjectFile, Opening, Outage,
    Placed, PlanOptions, PlanOutline, Refusal, RefusalKind, Request, Return, Schedule, SessionPart,
    SplicedFunction, StackFrames, Started, Status, Strategy as Samples, Switched, Target, Total,
    Workload, WorkloadEvent, encode,
};
use proptest::collection::vec;
use proptest::prelude::*;

fn bytes(most: usize) -> impl Strategy<Value = Bytes> {
    vec(any::<u8>(), 0..most).prop_map(Bytes::from)
}

fn placed() -> impl Strategy<Value = Placed> {
    let hook = prop::sample::select(vec![
        HookType::Pre,
        HookType::Post,
        HookType::Taken,
        HookType::Untaken,
    ]);
    (any::<[u32; 3]>(), hook, -1e9..1e9, -1e9..1e9).prop_map(
        |([function, block, instrument], hook, launch, splash)| Placed {
            function,
            block,
            hook,
            instrument,
            launch,
            splash,
        },
    )
}

fn part() -> impl Strategy<Value = SessionPart> {
    let style = prop::sample::select(Style::ALL.to_vec());
    let object = (".*", bytes(300)).prop_map(|(name, bytes)| ObjectFile { name, bytes });
    (
        vec(".*", 0..5),
        vec(placed(), 0..9),
        vec((".*", style), 0..3),
        vec((".*", ".*"), 0..3),
        vec(object, 0..3),
    )
        .prop_map(
            |(names, placements, styles, sources, objects)| SessionPart {
                names,
                placements,
                styles,
                sources,
                objects,
            },
        )
}

fn event_counters() -> impl Strategy<Value = Vec<EventCounter>> {
    let event = prop::sample::select(Event::ALL.to_vec());
    let counter = (event, any::<(u32, u8)>()).prop_map(|(event, (index, width))| EventCounter {
        event,
        index,
        width,
    });
    vec(counter, 0..9)
}

fn options() -> impl Strategy<Value = PlanOptions> {
    let assumed = proptest::option::of(event_counters());
    (".*", -1e9..1e9, any::<(bool, bool, bool, u32)>(), assumed).prop_map(
        |(
            release,
            duration,
            (save_all, tracepoints, unknown_kernel, storage_log2),
            assumed_events,
        )| {
            PlanOptions {
                release,
                duration,
                save_all,
                tracepoints,
                unknown_kernel,
                storage_log2,
                assumed_events,
            }
        },
    )
}

fn workload() -> impl Strategy<Value = Workload> {
    (".*", vec(".*", 0..4), -1e9..1e9).prop_map(|(program, arguments, at)| Workload {
        program,
        arguments,
        at,
    })
}

fn request() -> impl Strategy<Value = Request> {
    prop_oneof![
        Just(Request::Info),
        Just(Request::Kallsyms),
        Just(Request::Blacklist),
        Just(Request::Modules),
        Just(Request::Clear),
        Just(Request::Stop),
        Just(Request::Status),
        Just(Request::Look),
        Just(Request::End),
        any::<u64>().prop_map(Request::Ping),
        any::<(u64, u64)>().prop_map(|(address, length)| Request::Read { address, length }),
        part().prop_map(Request::Load),
        options().prop_map(Request::Plan),
        (
            proptest::option::of(workload()),
            collection(),
            proptest::option::of(any::<u64>()),
            any::<u64>()
        )
            .prop_map(|(workload, collection, start, token)| {
                Request::Start(Schedule {
                    workload,
                    collection,
                    start,
                    token,
                })
            }),
        any::<u64>().prop_map(Request::Confirm),
        any::<u64>().prop_map(Request::Share),
        any::<u32>().prop_map(Request::Flood),
        any::<(u64, u64)>().prop_map(|(token, confirmed)| Request::Resume { token, confirmed }),
    ]
}

fn collection() -> impl Strategy<Value = Collection> {
    let interval = || (-1e9..1e9, -1e9..1e9).prop_map(|(every, jitter)| Interval { every, jitter });
    let samples = prop_oneof![
        Just(Samples::Stream),
        Just(Samples::Oldest),
        Just(Samples::Newest),
        interval().prop_map(Samples::Periodic),
        (interval(), -1e9..1e9).prop_map(|(interval, length)| Samples::Windows(interval, length)),
    ];
    (samples, interval(), -1e9..1e9).prop_map(|(samples, totals, grace)| Collection {
        samples,
        totals,
        grace,
    })
}

fn refusal() -> impl Strategy<Value = Refusal> {
    ".*".prop_map(|text| Refusal {
        kind: RefusalKind::Module,
        text,
    })
}

fn stack() -> impl Strategy<Value = NumberedStack> {
    let frames = prop_oneof![
        vec(any::<u64>(), 0..9).prop_map(StackFrames::Kernel),
        vec(".*", 0..9).prop_map(StackFrames::Process),
    ];
    (any::<u64>(), frames).prop_map(|(number, frames)| NumberedStack { number, frames })
}

fn losses() -> impl Strategy<Value = Vec<CpuLosses>> {
    vec(
        any::<(u16, [u64; 6])>().prop_map(
            |(cpu, [taken, full, disabled, overwritten, overtaken, unfinished])| CpuLosses {
                cpu,
                taken,
                full,
                disabled,
                overwritten,
                overtaken,
                unfinished,
            },
        ),
        0..9,
    )
}

fn message() -> impl Strategy<Value = Message> {
    let target = (
        ".*",
        ".*",
        any::<(u32, u64, bool, u32)>(),
        vec(any::<(u64, u32)>(), 0..4),
        event_counters(),
    )
        .prop_map(
            |(host, release, (cpus, tsc_hz, runs_programs, boot), counters, events)| {
                let bank = |(base, slots)| CounterBank {
                    base: SegmentOffset(base),
                    slots,
                };
                Message::Info(Box::new(Target {
                    host,
                    release,
                    cpus,
                    tsc_hz,
                    runs_programs,
                    boot: boot.to_string(),
                    layout: RuntimeLayout {
                        counters: counters.into_iter().map(bank).collect(),
                        arena: Span::new(Addr(tsc_hz), 0),
                        events: Events {
                            counters: events.into(),
                            refused: [(Event::Cycles, "none is free".to_owned())].into(),
                        },
                        ..RuntimeLayout::supposed(Addr(0x1000))
                    },
                }))
            },
        );
    let holder = any::<(Option<u32>, Option<u32>, u64)>();
    let holder = holder.prop_map(|(user, process, seconds)| Holder {
        user,
        process,
        seconds,
    });
    let function = (".*", any::<u32>());
    let function = function.prop_map(|(name, splices)| SplicedFunction { name, splices });
    let status = (
        ".*",
        proptest::option::of(holder),
        any::<(Option<u64>, bool, u32)>(),
        vec(function, 0..4),
    )
        .prop_map(
            |(host, holder, (parked, is_out, splices), functions)| Status {
                release: host.clone(),
                host,
                holder,
                parked,
                is_out,
                splices,
                functions,
            },
        );
    let outline =
        any::<[u32; 6]>().prop_map(|[instruments, sites, patches, batches, pokes, checksum]| {
            PlanOutline {
                instruments,
                sites,
                patches,
                batches,
                pokes,
                checksum,
            }
        });
    let switched = (
        any::<(u32, u32, u64, u64)>(),
        -1e9..1e9,
        proptest::option::of(refusal()),
    )
        .prop_map(|((batch, gone, tsc_begin, tsc_end), scheduled, refused)| {
            Message::Switched(Switched {
                batch,
                scheduled,
                tsc_begin,
                tsc_end,
                gone,
                refused,
            })
        });
    let finished = (
        any::<(u64, bool, u64)>(),
        proptest::option::of(refusal()),
        losses(),
    )
        .prop_map(|((tsc, stopped, sent), failed, losses)| {
            Message::Finished(Finished {
                tsc,
                stopped,
                failed,
                losses,
                sent,
            })
        });
    let event = prop_oneof![
        any::<(u64, u32)>().prop_map(|(tsc, pid)| WorkloadEvent::Started { tsc, pid }),
        ".*".prop_map(WorkloadEvent::Line),
        (any::<(u64, bool)>(), ".*").prop_map(|((tsc, success), status)| WorkloadEvent::Ended {
            tsc,
            status,
            success
        }),
        ".*".prop_map(WorkloadEvent::Failed),
    ];
    prop_oneof![
        target,
        switched,
        finished,
        bytes(2000).prop_map(Message::Chunk),
        ".*".prop_map(Message::End),
        Just(Message::Accepted),
        Just(Message::Planning),
        outline.prop_map(Message::Planned),
        status.prop_map(Message::Status),
        refusal().prop_map(Message::Refused),
        any::<(u64, u64)>().prop_map(|(number, tsc)| Message::Pong { number, tsc }),
        any::<(u64, u64, u64)>().prop_map(|(tsc_hz, tsc, unix_ns)| Message::Started(Started {
            tsc_hz,
            tsc,
            unix_ns
        })),
        (any::<u16>(), bytes(2400)).prop_map(|(cpu, records)| Message::Samples { cpu, records }),
        (
            any::<u64>(),
            vec(
                any::<(u64, u64)>().prop_map(|(id, hits)| Total { id, hits }),
                0..9
            )
        )
            .prop_map(|(tsc, totals)| Message::Totals { tsc, totals }),
        (vec(stack(), 0..3), any::<u64>())
            .prop_map(|(stacks, lost)| Message::Stacks { stacks, lost }),
        (any::<u64>(), losses()).prop_map(|(tsc, cpus)| Message::Losses { tsc, cpus }),
        any::<(u64, u32)>().prop_map(|(tsc, splices)| Message::Retired { tsc, splices }),
        (any::<u64>(), ".*").prop_map(|(tsc, why)| Message::Out(Outage { tsc, why })),
        (
            any::<(u64, u64, u32)>(),
            vec(any::<u64>(), 0..9),
            vec(".*", 0..3)
        )
            .prop_map(|((tsc_begin, tsc_end, batches), left_out, replaced)| {
                Message::Back(Return {
                    tsc_begin,
                    tsc_end,
                    batches,
                    left_out,
                    replaced,
                })
            }),
        event.prop_map(Message::Workload),
    ]
}

/// Cuts `stream` at the given positions, feeds it piece by piece, and takes all available items
/// each time.
fn fed(stream: &[u8], cuts: &[prop::sample::Index]) -> Vec<Incoming<Request>> {
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
    cuts.extend([0, stream.len()]);
    cuts.sort_unstable();
    let mut decoder = Decoder::new();
    let mut all = Vec::new();
    for piece in cuts.windows(2) {
        decoder.push(&stream[piece[0]..piece[1]]);
        // After an error everything up to the next opening is void.
        while let Ok(Some(incoming)) = decoder.take() {
            all.push(incoming);
        }
    }
    all
}

fn opening(nonce: u64) -> Opening {
    Opening { version: 1, nonce }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn requests_round_trip_however_the_stream_is_cut(
        requests in vec(request(), 1..6), cuts in vec(any::<prop::sample::Index>(), 0..20), stale in vec(any::<u8>(), 0..200)
    ) {
        let mut stream = stale;
        stream.extend(opening(7).to_bytes());
        for request in &requests {
            stream.extend(encode(request).unwrap());
        }
        let mut expected = vec![Incoming::Opening(opening(7))];
        expected.extend(requests.into_iter().map(Incoming::Message));
        prop_assert_eq!(fed(&stream, &cuts), expected);
    }

    #[test]
    fn messages_round_trip(messages in vec(message(), 1..6), piece in 1_usize..5000) {
        let stream: Vec<u8> = messages.iter().flat_map(|message| encode(message).unwrap()).collect();
        let mut decoder = Decoder::frames_only();
        let mut got = Vec::new();
        for piece in stream.chunks(piece) {
            decoder.push(piece);
            while let Some(message) = decoder.take::<Message>().unwrap() {
                got.push(message);
            }
        }
        prop_assert_eq!(got, messages);
        prop_assert_eq!(decoder.waiting(), 0);
    }

    /// Covers a client that is replaced in the middle of a frame.
    #[test]
    fn an_opening_voids_everything_before_it(
        torn in request(), keep in any::<prop::sample::Index>(), cuts in vec(any::<prop::sample::Index>(), 0..20), request in request()
    ) {
        let frame = encode(&torn).unwrap();
        let mut stream = opening(1).to_bytes();
        stream.extend(&frame[..keep.index(frame.len())]);
        stream.extend(opening(2).to_bytes());
        stream.extend(encode(&request).unwrap());
        let expected = vec![Incoming::Opening(opening(2)), Incoming::Message(request)];
        let got = fed(&stream, &cuts);
        prop_assert!(got.ends_with(&expected), "{:?}", got);
    }

    #[test]
    fn garbage_never_panics_and_never_grows(garbage in vec(any::<u8>(), 0..4000), piece in 1_usize..500) {
        let mut decoder = Decoder::new();
        decoder.push(&opening(3).to_bytes());
        let mut frames = Decoder::frames_only();
        for piece in garbage.chunks(piece) {
            decoder.push(piece);
            frames.push(piece);
            for _ in 0..piece.len() {
                if !matches!(decoder.take::<Request>(), Ok(Some(_))) {
                    break;
                }
            }
            let _any = frames.take::<Message>();
            prop_assert!(frames.waiting() <= garbage.len());
        }
    }

    #[test]
    fn a_damaged_frame_is_refused_or_decodes_within_limits(request in request(), at in any::<prop::sample::Index>(), to in any::<u8>()) {
        let mut frame = encode(&request).unwrap();
        let at = 4 + at.index(frame.len() - 4);
        frame[at] = to;
        let mut decoder = Decoder::frames_only();
        decoder.push(&frame);
        if let Ok(Some(other)) = decoder.take::<Request>() {
            prop_assert!(encode(&other).unwrap().len() <= frame.len() + 16);
        }
    }

    #[test]
    fn a_request_within_its_limits_stays_so(request in request()) {
        if let (Ok(()), Request::Read { address, length }) = (request.check(), &request) {
            prop_assert!(address.checked_add(*length).is_some());
        }
        if let (Ok(()), Request::Load(part)) = (request.check(), &request) {
            prop_assert!(part.names.iter().all(|name| name.len() <= MAX_NAME));
        }
        if let (Ok(()), Request::Plan(options)) = (request.check(), &request) {
            prop_assert!(options.duration >= 0.0);
        }
    }
}

#[test]
fn a_frame_over_the_limit_is_refused_before_its_bytes_arrive() {
    let mut decoder = Decoder::frames_only();
    decoder.push(&(MAX_FRAME as u32 + 1).to_le_bytes());
    let refused = decoder.take::<Message>().unwrap_err().to_string();
    assert!(
        refused.contains("over the limit") && refused.contains("same version"),
        "{refused}"
    );
    assert!(encode(&Message::Chunk(Bytes::from(vec![0; MAX_FRAME + 1]))).is_err());
}

#[test]
fn a_length_inside_a_frame_is_checked() {
    // A chunk with a stated length of 2^60 bytes.
    let mut body = postcard::to_stdvec(&Message::Chunk(Bytes::from(Vec::new()))).unwrap();
    body.pop();
    body.extend([0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x0f]);
    let mut frame = (body.len() as u32).to_le_bytes().to_vec();
    frame.extend(body);
    let mut decoder = Decoder::frames_only();
    decoder.push(&frame);
    assert!(decoder.take::<Message>().is_err());
}

#[test]
fn after_an_error_only_an_opening_is_accepted() {
    let mut decoder = Decoder::new();
    decoder.push(&opening(1).to_bytes());
    decoder.push(&[3, 0, 0, 0, 0xff, 0xff, 0xff]);
    assert_eq!(
        decoder.take::<Request>().unwrap(),
        Some(Incoming::Opening(opening(1)))
    );
    assert!(decoder.take::<Request>().is_err());
    decoder.push(&encode(&Request::Info).unwrap());
    assert_eq!(decoder.take::<Request>().unwrap(), None);
    decoder.push(&opening(2).to_bytes());
    decoder.push(&encode(&Request::Info).unwrap());
    assert_eq!(
        decoder.take::<Request>().unwrap(),
        Some(Incoming::Opening(opening(2)))
    );
    assert_eq!(
        decoder.take::<Request>().unwrap(),
        Some(Incoming::Message(Request::Info))
    );
}

#[test]
fn an_opening_has_the_layout_that_may_never_change() {
    let bytes = Opening {
        version: 0x0403_0201,
        nonce: 0x0c0b_0a09_0807_0605,
    }
    .to_bytes();
    assert_eq!(bytes.len(), OPENING_BYTES);
    assert_eq!(bytes[..16], MAGIC);
    assert_eq!(bytes[16..], [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
}

#[test]
fn numbers_out_of_bounds_are_refused_with_the_field() {
    let refused = |request: Request| request.check().unwrap_err().text;
    assert!(
        refused(Request::Read {
            address: u64::MAX,
            length: 2
        })
        .contains("memory")
    );
    let streamed = Collection {
        samples: Samples::Stream,
        totals: Interval {
            every: 0.1,
            jitter: 0.0,
        },
        grace: 0.0,
    };
    let options = |duration| PlanOptions {
        release: String::new(),
        duration,
        save_all: false,
        tracepoints: false,
        unknown_kernel: false,
        storage_log2: 12,
        assumed_events: None,
    };
    assert!(refused(Request::Plan(options(f64::INFINITY))).contains("duration"));
    assert!(Request::Plan(options(10.0)).check().is_ok());
    let counter = EventCounter {
        event: Event::Cycles,
        index: 0,
        width: 48,
    };
    let many = PlanOptions {
        assumed_events: Some(vec![counter; Event::ALL.len() + 1]),
        ..options(10.0)
    };
    assert!(refused(Request::Plan(many)).contains("8 events"));
    let collected = |samples, grace| {
        Request::Start(Schedule {
            workload: None,
            collection: Collection {
                samples,
                grace,
                ..streamed
            },
            start: None,
            token: 0,
        })
    };
    let interval = |every, jitter| Interval { every, jitter };
    for (samples, grace, named) in [
        (
            Samples::Periodic(interval(0.0, 0.0)),
            0.0,
            "samples every 0 s",
        ),
        (
            Samples::Periodic(interval(1.0, f64::NAN)),
            0.0,
            "varied by NaN",
        ),
        (
            Samples::Windows(interval(1.0, 0.5), 0.5),
            0.0,
            "window of 0.5",
        ),
        (Samples::Stream, -1.0, "grace of -1"),
        (Samples::Stream, f64::NAN, "grace of NaN"),
    ] {
        let text = refused(collected(samples, grace));
        assert!(text.contains(named), "{text}");
    }
    assert!(
        collected(Samples::Windows(interval(1.0, 0.5), 0.4), 5.0)
            .check()
            .is_ok()
    );
    let load = |names: Vec<String>, placements: Vec<Placed>| {
        Request::Load(SessionPart {
            names,
            placements,
            ..SessionPart::default()
        })
    };
    let longest = "f".repeat(MAX_NAME);
    assert!(load(vec![longest.clone()], Vec::new()).check().is_ok());
    let long = refused(load(vec![longest + "f"], Vec::new()));
    assert!(long.contains("513 bytes in a name"), "{long}");
    let placed = Placed {
        function: u32::MAX,
        block: u32::MAX,
        hook: HookType::Pre,
        instrument: u32::MAX,
        launch: 0.0,
        splash: 1.0,
    };
    let many = refused(load(Vec::new(), vec![placed; MAX_ITEMS + 1]));
    assert!(many.contains("placements"), "{many}");
    // The largest message of placements fits a frame.
    let most = load(Vec::new(), vec![placed; MAX_ITEMS]);
    assert!(most.check().is_ok() && encode(&most).is_ok());
    assert!(refused(load(vec![String::new(); MAX_ITEMS + 1], Vec::new())).contains("names"));
}
