//! Hostile clients: they speak the protocol well, and what they load names real functions,
//! blocks and instruments, beside invalid and damaged parts. They may instrument the kernel, and
//! nothing else.
//!
//! `GILK_CLIENTS` sets their number, `GILK_FUZZ_SEED` the seed.

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use gilk_engine::Image;
use gilk_engine::placement::Style;
use gilk_instruments::Library;
use ilk_driver::protocol::{
    Decoder, FrameDecoder, MAGIC, Message, OPENING_BYTES, Opening, PlanOptions, Request, Schedule,
    SessionPart, VERSION, encode,
};

use crate::nonsense::Random;
use crate::support::{number_in, prepared, shared_of};

const CLIENTS: u64 = 7;
/// Sessions of one client.
const SESSIONS: usize = 4;
/// Time limit for an answer.
const PATIENCE: Duration = Duration::from_secs(120);

/// A client that sends anything.
struct Peer {
    stream: UnixStream,
    decoder: FrameDecoder,
}

impl Peer {
    fn open(socket: &std::path::Path, nonce: u64) -> Self {
        let mut stream = UnixStream::connect(socket).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_millis(50)))
            .unwrap();
        let opening = Opening {
            version: VERSION,
            nonce,
        };
        stream.write_all(&opening.to_bytes()).unwrap();
        let (begun, mut read) = (Instant::now(), Vec::new());
        loop {
            assert!(begun.elapsed() < PATIENCE, "the agent does not answer");
            read.extend(received(&mut stream).expect("the port closed"));
            let mut windows = read.windows(OPENING_BYTES);
            let answer = windows.position(|window| {
                window.starts_with(&MAGIC)
                    && Opening::find_last(window).is_some_and(|(found, _)| found.nonce == nonce)
            });
            if let Some(at) = answer {
                let mut decoder = Decoder::frames_only();
                decoder.push(&read[at + OPENING_BYTES..]);
                return Self { stream, decoder };
            }
        }
    }

    fn send(&mut self, request: &Request) {
        self.stream.write_all(&encode(request).unwrap()).unwrap();
    }

    /// Returns the next message, if there is one in time.
    fn next(&mut self, limit: Duration) -> Option<Message> {
        let begun = Instant::now();
        loop {
            if let Some(message) = self.decoder.take().unwrap() {
                return Some(message);
            }
            if begun.elapsed() > limit {
                return None;
            }
            let bytes = received(&mut self.stream)?;
            self.decoder.push(&bytes);
        }
    }

    /// Returns the answer to a request, without reports of progress and of sessions.
    fn answer(&mut self, request: &Request) -> Message {
        self.send(request);
        loop {
            match self.next(PATIENCE).expect("the agent does not answer") {
                Message::Planning => {}
                message if message.is_of_session() && !matches!(message, Message::Started(_)) => {}
                message => return message,
            }
        }
    }
}

/// Returns what arrives within the read timeout; `None` if the other end is closed.
fn received(stream: &mut UnixStream) -> Option<Vec<u8>> {
    let mut bytes = vec![0; 65_536];
    match stream.read(&mut bytes) {
        Ok(0) => None,
        Ok(count) => {
            bytes.truncate(count);
            Some(bytes)
        }
        Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
            Some(Vec::new())
        }
        Err(e) => panic!("{e}"),
    }
}

/// Counts of what the clients did.
#[derive(Debug, Default)]
struct Done {
    planned: u32,
    refused: u32,
    started: u32,
    finished: u32,
    read: u32,
    unread: u32,
    /// Time until each plan was answered.
    waited: Vec<Duration>,
}

/// Returns a part of a session of real functions and instruments, sometimes with a fault in it.
fn part(random: &mut Random, image: &Image, library: &Library) -> SessionPart {
    let functions = image.functions();
    let mut names: Vec<String> = Vec::new();
    for _ in 0..1 + random.below(3) {
        let name = &functions[random.below(functions.len())].name;
        names.push(name.to_string());
    }
    let placed = names.len();
    let definitions: Vec<_> = library.iter().collect();
    let definition = definitions[random.below(definitions.len())];
    let mut sources = Vec::new();
    names.push(match random.below(3) {
        0 => "counter".to_owned(),
        1 => definition.name.clone(),
        _ => {
            // A known instrument, often with a word of it changed.
            let mut text = definition.text().unwrap().replace(&definition.name, "own");
            let digits: Vec<usize> = text
                .char_indices()
                .filter(|(_, c)| c.is_ascii_digit())
                .map(|(at, _)| at)
                .collect();
            if !digits.is_empty() && random.below(2) == 0 {
                let at = digits[random.below(digits.len())];
                text.replace_range(at..=at, &random.below(10).to_string());
            }
            sources.push(("own".to_owned(), text));
            "own".to_owned()
        }
    });
    let styles = (0..random.below(2)).map(|_| {
        let name = names[random.below(placed)].clone();
        (name, Style::ALL[random.below(3)])
    });
    let styles = styles.collect();
    let placements = (0..1 + random.below(4)).map(|_| {
        let mut one = random.placed(placed);
        one.instrument = placed as u32;
        if random.below(3) > 0 {
            one.block = 0;
        }
        if random.below(8) > 0 {
            (one.launch, one.splash) = (one.launch.min(0.3), 0.4);
        }
        one
    });
    SessionPart {
        placements: placements.collect(),
        styles,
        sources,
        names,
        ..SessionPart::default()
    }
}

/// Loads, plans and runs one session; returns whether the client is still there.
fn one_session(
    peer: &mut Peer,
    random: &mut Random,
    (image, library): (&Image, &Library),
    done: &mut Done,
) -> bool {
    if random.below(6) > 0 {
        peer.answer(&Request::Clear);
    }
    let part = match random.below(8) {
        0 => random.part(),
        _ => part(random, image, library),
    };
    peer.answer(&Request::Load(part));
    let mut options = PlanOptions {
        duration: 0.5,
        storage_log2: 12,
        assumed_events: None,
        ..random.options(image.release())
    };
    if random.below(8) == 0 {
        options = random.options(image.release());
    }
    let begun = Instant::now();
    let answer = peer.answer(&Request::Plan(options));
    done.waited.push(begun.elapsed());
    match answer {
        Message::Planned(_) => done.planned += 1,
        Message::Refused(_) => done.refused += 1,
        other => panic!("{other:?}"),
    }
    let mut schedule = random.schedule();
    if random.below(4) > 0 {
        schedule = Schedule {
            start: None,
            collection: ilk_driver::protocol::Collection {
                grace: 0.0,
                ..schedule.collection
            },
            ..schedule
        };
    }
    match peer.answer(&Request::Start(schedule)) {
        Message::Started(_) => done.started += 1,
        Message::Refused(_) => return true,
        other => panic!("{other:?}"),
    }
    match random.below(4) {
        // The client is lost in the middle of its session.
        0 => return false,
        1 => {
            std::thread::sleep(Duration::from_millis(random.below(200) as u64));
            peer.send(&Request::Stop);
            finished(peer, done);
        }
        _ => finished(peer, done),
    }
    true
}

fn finished(peer: &mut Peer, done: &mut Done) {
    loop {
        match peer.next(PATIENCE).expect("the session does not end") {
            Message::Finished(finished) => {
                // A refusal by the module would be a disagreement of verifier and module.
                assert_eq!(finished.failed, None);
                done.finished += 1;
                return;
            }
            Message::Refused(refusal) => panic!("{refusal}"),
            _ => {}
        }
    }
}

/// Reads at random addresses. Text is readable, and what is not text, tables or types is not.
fn reads(peer: &mut Peer, random: &mut Random, image: &Image, done: &mut Done) {
    for _ in 0..8 {
        let text = image.text();
        let (address, is_text) = match random.below(3) {
            0 => (
                text.start.0 + random.below(text.len() as usize - 64) as u64,
                true,
            ),
            // The direct map, in which all memory is.
            1 => (0xffff_8880_0000_0000 + random.below(1 << 30) as u64, false),
            _ => (
                image.extent().end.0 - random.below(1 << 20) as u64 - 64,
                false,
            ),
        };
        match peer.answer(&Request::Read {
            address,
            length: 1 + random.below(32) as u64,
        }) {
            Message::Chunk(_) => {
                assert!(is_text, "{address:#x} was read");
                assert!(matches!(peer.next(PATIENCE), Some(Message::End(_))));
                done.read += 1;
            }
            Message::Refused(refusal) => {
                assert!(!is_text, "{address:#x}: {refusal}");
                done.unread += 1;
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
#[ignore = "boots the lab; cargo xtask test runs it"]
fn hostile_clients_instrument_and_do_no_harm() {
    let shared = shared_of(&prepared().with(|options| options.append.push("gilk.run=off".into())));
    let turn = shared.turn();
    let clients = number_in("GILK_CLIENTS").unwrap_or(CLIENTS);
    let mut random = Random(number_in("GILK_FUZZ_SEED").unwrap_or(0x6167_656e));
    let library = Library::builtin().unwrap();
    let mut done = Done::default();
    for nonce in 0..clients {
        let mut peer = Peer::open(shared.lab.socket(), 1000 + nonce);
        // A session with a grace may have been left by the client before.
        peer.answer(&Request::End);
        for _ in 0..1 + random.below(SESSIONS) {
            reads(&mut peer, &mut random, &shared.image, &mut done);
            let both = (&shared.image, &library);
            if !one_session(&mut peer, &mut random, both, &mut done) || random.below(4) == 0 {
                break;
            }
        }
        if random.below(4) == 0 {
            let piece = random.piece();
            peer.stream.write_all(&piece).unwrap();
        }
        peer.stream.shutdown(Shutdown::Both).unwrap();
    }
    // The last client may have left one too.
    let mut peer = Peer::open(shared.lab.socket(), 1000 + clients);
    peer.answer(&Request::End);
    peer.stream.shutdown(Shutdown::Both).unwrap();
    // The first plan reads the kernel and analyzes it.
    let first = done.waited.remove(0);
    done.waited.sort_unstable();
    let middle = done.waited[done.waited.len() / 2];
    println!(
        "{clients} clients: {} sessions planned, {} refused, {} started, {} finished; {} reads of \
         text, {} of other memory refused; {first:.1?} to the first plan, {middle:.1?} (median) to later ones",
        done.planned, done.refused, done.started, done.finished, done.read, done.unread
    );
    assert!(
        u64::from(done.started) * 4 > clients && done.finished > 0,
        "too few sessions: {done:?}"
    );
    assert!(done.refused > 0 && done.read > 0 && done.unread > 0);
    let console = shared.lab.console().unwrap();
    assert!(!console.contains("the agent ended"), "{console}");
    turn.assert_untouched();
}
