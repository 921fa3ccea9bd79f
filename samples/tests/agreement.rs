//! Every output shows the same numbers: those of a naive model.

#![cfg(feature = "recording")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests, their helpers included, fail by panicking"
)]

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use gilk_samples::chart::{Chart, scale, svg, terminal};
use gilk_samples::compare::{Side, compare};
use gilk_samples::export::{Format, export_to};
use gilk_samples::index::Index;
use gilk_samples::joined::Joined;
use gilk_samples::metadata::{Clock, Delivers, InstrumentInfo, Metadata};
use gilk_samples::profile::{Profile, profiles};
use gilk_samples::recording::{Loss, LossCause, Mark, MarkKind, Recording, Writer};
use gilk_samples::statistics::Rate;
use gilk_samples::texts::{Argument, Form, PrintedLine, PrintedPart, SampleTexts, Texts};
use gilk_samples::{Batch, HookType, InstrumentId, Meaning, Sample};
use proptest::prelude::*;
use serde_json::Value;

const HZ: u64 = 1_000_000;
const START: u64 = 5_000_000;
const UNIX: u64 = 1_700_000_000_000_000_000;
const MEANINGS: [Meaning; 6] = [
    Meaning::Event,
    Meaning::Count,
    Meaning::Value,
    Meaning::Duration,
    Meaning::Block,
    Meaning::Level,
];

/// A random recording. Times are in ticks from [`START`].
#[derive(Clone, Debug)]
struct Case {
    /// Launch and splash of each instrument; without a splash the machine was lost.
    placed: Vec<(u64, Option<u64>)>,
    /// CPU, instrument, value, and position between launch and splash in thousandths.
    samples: Vec<(u16, usize, u64, u64)>,
    losses: Vec<(u16, u64, u64)>,
    /// The planned splash in seconds, which is later.
    planned: f64,
    /// Time of the last row.
    end: u64,
}

fn case() -> impl Strategy<Value = Case> {
    let placed = (0u64..1_000_000, prop::option::of(1u64..2_000_000));
    (
        prop::collection::vec(placed, MEANINGS.len()),
        prop::collection::vec((0u16..3, 0..MEANINGS.len(), 0u64..1000, 0u64..1000), 0..200),
        prop::collection::vec((0u16..3, 0u64..3_000_000, 1u64..100), 0..3),
        prop_oneof![Just(3600.0), Just(1e9)],
    )
        .prop_map(|(placed, samples, losses, planned)| {
            let placed: Vec<(u64, Option<u64>)> = placed
                .into_iter()
                .map(|(launch, length)| (launch, length.map(|length| launch + length)))
                .collect();
            let splashes = placed
                .iter()
                .map(|(launch, splash)| splash.unwrap_or(*launch));
            let end = splashes.max().unwrap_or(0).max(3_000_000);
            Case {
                placed,
                samples,
                losses,
                planned,
                end,
            }
        })
}

fn id(place: usize) -> u64 {
    let id = InstrumentId::new(1, HookType::Pre, place as u32, 0);
    id.unwrap().pack()
}

/// Returns the texts of the events: lines without and with arguments.
fn texts() -> SampleTexts {
    let argument = |form| PrintedPart::Argument(Argument::plain(form));
    let text = |text: &str| PrintedPart::Text(text.to_owned());
    let (number, name) = (argument(Form::Signed), argument(Form::Text));
    let formats = vec![
        PrintedLine(vec![text("plain")]),
        PrintedLine(vec![number, text(" of "), name]),
    ];
    let mut texts = SampleTexts::default();
    texts.insert(id(0), Texts::Lines(formats));
    texts
}

/// Returns the value of an event of a number, its words and its text.
fn line(number: u64) -> (u64, Vec<u64>, String) {
    if number.is_multiple_of(2) {
        return (0, Vec::new(), "plain".to_owned());
    }
    let mut name = format!("n{number}").into_bytes();
    name.resize(8, 0);
    let name = u64::from_le_bytes(name.try_into().unwrap());
    (1, vec![number, name, 0], format!("{number} of n{number}"))
}

/// A sample, with the further words of its line.
#[derive(Clone, Debug)]
struct ModelRow {
    cpu: u16,
    sample: Sample,
    words: Vec<u64>,
    text: String,
}

/// A row of the model: what every output must show of an instrument.
#[derive(Clone, Debug, Default, PartialEq)]
struct Expected {
    hits: u64,
    seconds: f64,
    values: Vec<u64>,
    lossy: bool,
}

impl Case {
    fn metadata(&self) -> Metadata {
        let info = |(place, meaning): (usize, &Meaning)| InstrumentInfo {
            id: id(place),
            label: format!("{meaning:?} pre f block {place}"),
            instrument: format!("{meaning:?}"),
            meaning: *meaning,
            unit: String::new(),
            launch: 0.25,
            splash: self.planned,
            placed: None,
            delivers: Delivers::Samples,
        };
        Metadata {
            cpus: 3,
            clock: Clock {
                hz: HZ,
                start: START,
                start_unix_ns: UNIX,
            },
            instruments: MEANINGS.iter().enumerate().map(info).collect(),
            texts: texts(),
            ..Metadata::default()
        }
    }

    /// Returns all rows in order of time: a counter's values are made to grow.
    fn rows(&self) -> Vec<ModelRow> {
        let mut rows: Vec<(u16, usize, u64, u64)> = self
            .samples
            .iter()
            .map(|&(cpu, place, value, share)| {
                let (launch, splash) = self.placed[place];
                let length = splash.unwrap_or(self.end) - launch;
                (cpu, place, value, START + launch + length * share / 1000)
            })
            .collect();
        rows.sort_by_key(|row| row.3);
        let mut total = 0;
        rows.into_iter()
            .map(|(cpu, place, value, tsc)| {
                let counts = MEANINGS[place] == Meaning::Count;
                total += if counts { value } else { 0 };
                let (value, words, text) = match MEANINGS[place] {
                    Meaning::Count => (total, Vec::new(), String::new()),
                    Meaning::Event => line(value),
                    _ => (value, Vec::new(), String::new()),
                };
                let id = id(place);
                ModelRow {
                    cpu,
                    sample: Sample { id, value, tsc },
                    words,
                    text,
                }
            })
            .collect()
    }

    fn record(&self, path: &Path) -> Recording {
        let mut writer = Writer::create(path, &self.metadata()).unwrap();
        for cpu in 0..3 {
            let own = self.rows().into_iter().filter(|row| row.cpu == cpu);
            let samples = own.flat_map(|ModelRow { sample, words, .. }| {
                let words = words.into_iter();
                let words = words.map(move |value| Sample { value, ..sample }.as_word());
                std::iter::once(sample).chain(words)
            });
            let samples = samples.collect();
            writer.write(&Batch { cpu, samples }).unwrap();
        }
        let losses = self.losses.iter().map(|&(cpu, at, count)| Loss {
            cpu,
            tsc: START + at,
            cause: LossCause::RingFull,
            count,
        });
        writer.losses(&losses.collect::<Vec<_>>()).unwrap();
        let mark = |kind, place, at: u64| Mark {
            kind,
            tsc: START + at,
            id: id(place),
            value: 0,
        };
        for (place, &(launch, splash)) in self.placed.iter().enumerate() {
            writer.mark(mark(MarkKind::Launch, place, launch)).unwrap();
            if let Some(splash) = splash {
                writer.mark(mark(MarkKind::Splash, place, splash)).unwrap();
            }
        }
        let last = Mark {
            kind: MarkKind::User,
            tsc: START + self.end,
            id: 0,
            value: 1,
        };
        writer.mark(last).unwrap();
        writer.finish().unwrap();
        Recording::open(path).unwrap()
    }

    fn expected(&self) -> Vec<Expected> {
        let rows = self.rows();
        let of = |(place, &(launch, splash)): (usize, &(u64, Option<u64>))| {
            let own = rows.iter().filter(|row| row.sample.id == id(place));
            let values: Vec<u64> = own.map(|row| row.sample.value).collect();
            Expected {
                hits: match MEANINGS[place] {
                    Meaning::Count => values.last().copied().unwrap_or(0),
                    _ => values.len() as u64,
                },
                seconds: (splash.unwrap_or(self.end + 1) - launch) as f64 / HZ as f64,
                values: match MEANINGS[place] {
                    Meaning::Event | Meaning::Count | Meaning::Block => Vec::new(),
                    _ => values,
                },
                lossy: !self.losses.is_empty(),
            }
        };
        self.placed.iter().enumerate().map(of).collect()
    }
}

impl Expected {
    fn rate(&self) -> Rate {
        Rate::of(self.hits, self.seconds, self.lossy)
    }
}

/// Compares the statistics of `ilk stats` with the model.
fn check_profile(profile: &Profile, expected: &Expected) {
    assert_eq!(profile.hits, expected.hits, "{}", profile.label);
    assert!(
        (profile.seconds - expected.seconds).abs() < 1e-5,
        "{profile:?}"
    );
    assert_eq!(profile.rate.to_string(), expected.rate().to_string());
    let count = expected.values.len() as f64;
    match &profile.values {
        None => assert!(expected.values.is_empty(), "{profile:?}"),
        Some(values) => {
            let mut sorted = expected.values.clone();
            sorted.sort_unstable();
            let mean = sorted.iter().sum::<u64>() as f64 / count;
            let squares = sorted.iter().map(|&value| (value as f64 - mean).powi(2));
            let deviation = (squares.sum::<f64>() / count).sqrt();
            assert_eq!(values.count, sorted.len() as u64);
            assert_eq!(
                (values.min, values.max),
                (sorted[0], sorted[sorted.len() - 1])
            );
            assert!(
                (values.mean - mean).abs() < 1e-6 && (values.deviation - deviation).abs() < 1e-6
            );
            assert_eq!(values.percentiles[3], sorted[sorted.len().div_ceil(2) - 1]);
        }
    }
}

fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Compares the chart of `ilk show` and its picture with the model.
fn check_chart(recording: &Recording, expected: &[Expected]) {
    let metadata = recording.measured().unwrap();
    let (index, damaged) = Index::of(recording, |_| ControlFlow::Continue(()));
    assert!(damaged.is_empty());
    let (losses, marks) = (recording.losses().unwrap(), recording.marks().unwrap());
    let mut chart = Chart::new(&metadata, &index);
    (chart.losses, chart.marks) = (&losses, &marks);
    let idle = expected.iter().filter(|of| of.hits == 0).count();
    if idle > 0 {
        // A level without samples may not be drawn either.
        assert!(terminal(&chart, 300).contains(&scale::idle(idle)));
    }
    chart.all = true;
    let text = terminal(&chart, 400);
    let picture = svg(&chart);
    for (place, of) in expected.iter().enumerate() {
        let label = format!("{:?} pre f block {place} ", MEANINGS[place]);
        let line = text.lines().find(|line| line.starts_with(&label));
        let numbers = words(line.unwrap().rsplit('│').next().unwrap());
        let rate = of.rate().to_string();
        let wanted = words(&format!("{} {rate}", scale::grouped(of.hits)));
        assert!(numbers.starts_with(&wanted), "{wanted} in {text}");
        let wanted = match of.hits {
            0 => "no hits".to_owned(),
            1 => "1 hit".to_owned(),
            hits => format!("{} hits  ·  {rate}", scale::grouped(hits)),
        };
        assert!(picture.contains(&wanted), "{wanted}");
    }
    let samples = |counted: bool| -> u64 {
        let of = expected.iter().zip(MEANINGS);
        let of = of.filter(|(_, meaning)| (*meaning == Meaning::Count) == counted);
        of.map(|(of, _)| of.hits).sum()
    };
    if samples(false) > 0 {
        let heading = format!("{} samples", scale::grouped(samples(false)));
        assert!(picture.contains(&heading), "{heading}");
    }
    if samples(true) > 0 {
        let heading = format!("{} counted hits", scale::grouped(samples(true)));
        assert!(picture.contains(&heading), "{heading}");
    }
}

/// Compares `ilk diff` with the model.
fn check_comparison(recording: &Recording, expected: &[Expected]) {
    let side = Side {
        recording,
        span: None,
    };
    let compared = compare(side, side);
    for (place, of) in expected.iter().enumerate() {
        let label = format!("{:?} pre f block {place}", MEANINGS[place]);
        let found = compared.instruments.iter().find(|one| one.label == label);
        let found = found.unwrap();
        assert_eq!(found.a.count, of.hits, "{label}");
        assert!((found.a.seconds - of.seconds).abs() < 1e-5, "{label}");
        if let Some(rate) = &found.rate {
            let expected = of.rate().per_second.unwrap();
            assert!(
                (rate.before - expected).abs() < 1e-6 * expected.max(1.0),
                "{label}"
            );
        }
    }
}

/// Compares a CSV export with the model.
fn check_csv(recording: &Recording, path: &Path, case: &Case) {
    export_to(recording, Format::Csv, path, &mut |_| {
        ControlFlow::Continue(())
    })
    .unwrap();
    let text = std::fs::read_to_string(path).unwrap();
    let mut exported: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for line in text.lines().skip(1) {
        let fields: Vec<&str> = line.split(',').collect();
        let [.., id, value, _] = &fields[..] else {
            panic!("{line}")
        };
        let id = id.parse().unwrap();
        exported.entry(id).or_default().push(value.parse().unwrap());
    }
    let mut expected: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for ModelRow { sample, .. } in case.rows() {
        expected.entry(sample.id).or_default().push(sample.value);
    }
    for values in exported.values_mut().chain(expected.values_mut()) {
        // The order of samples at one tick is that of CPUs.
        values.sort_unstable();
    }
    assert_eq!(exported, expected);
}

/// Values and texts of samples, by the meaning in the name of their instrument.
type Found = BTreeMap<String, Vec<(u64, String)>>;
/// Reader of an export.
type ReadTrace = fn(&Path) -> Found;

/// Returns the meaning in the name of an instrument, an event or a track; none for losses and marks.
fn meaning_of(name: &str) -> Option<String> {
    let word = name.split(' ').next()?;
    let mut known = MEANINGS.iter().map(|meaning| format!("{meaning:?}"));
    known.find(|known| known == word)
}

fn add(found: &mut Found, name: &str, value: u64, text: &str) {
    if let Some(meaning) = meaning_of(name) {
        found
            .entry(meaning)
            .or_default()
            .push((value, text.to_owned()));
    }
}

/// Reads a number of JSON, which is a string in hexadecimal where readers would round it.
fn json_number(value: &Value) -> u64 {
    match value {
        Value::String(text) => u64::from_str_radix(&text[2..], 16).unwrap(),
        value => value.as_u64().unwrap(),
    }
}

fn json_lines(file: &Path) -> Found {
    let mut found = Found::new();
    for line in std::fs::read_to_string(file).unwrap().lines().skip(1) {
        let line: Value = serde_json::from_str(line).unwrap();
        let text = line.get("text").and_then(Value::as_str).unwrap_or_default();
        let name = line["instrument"].as_str().unwrap();
        add(&mut found, name, json_number(&line["value"]), text);
    }
    found
}

fn chrome(file: &Path) -> Found {
    let mut found = Found::new();
    let text = std::fs::read_to_string(file).unwrap();
    let trace: Value = serde_json::from_str(&text).unwrap();
    for event in trace["traceEvents"].as_array().unwrap() {
        let global = event.get("s").and_then(Value::as_str) == Some("g");
        if event["ph"] == "M" || global {
            continue;
        }
        let arguments = &event["args"];
        let text = arguments.get("text").and_then(Value::as_str);
        let name = event["name"].as_str().unwrap();
        let value = json_number(&arguments["value"]);
        add(&mut found, name, value, text.unwrap_or_default());
    }
    found
}

/// Reads the fields of a protocol buffer: numbers and bytes.
fn fields(mut bytes: &[u8]) -> Vec<(u64, u64, &[u8])> {
    fn varint(bytes: &mut &[u8]) -> u64 {
        let mut number = 0;
        for place in 0.. {
            let (first, rest) = bytes.split_first().unwrap();
            *bytes = rest;
            number |= u64::from(first & 0x7f) << (7 * place);
            if first & 0x80 == 0 {
                break;
            }
        }
        number
    }
    let mut all = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let number = varint(&mut bytes);
        let (own, rest) = match key & 7 {
            0 => bytes.split_at(0),
            2 => bytes.split_at(usize::try_from(number).unwrap()),
            kind => panic!("field type {kind}"),
        };
        bytes = rest;
        all.push((key >> 3, number, own));
    }
    all
}

fn perfetto(file: &Path) -> Found {
    let mut found = Found::new();
    let bytes = std::fs::read(file).unwrap();
    let mut tracks: BTreeMap<u64, String> = BTreeMap::new();
    let of = |all: &[(u64, u64, &[u8])], wanted: u64| {
        let mut all = all.iter().filter(|field| field.0 == wanted);
        all.next().map(|field| field.1)
    };
    let text_of = |all: &[(u64, u64, &[u8])], wanted: u64| {
        let mut all = all.iter().filter(|field| field.0 == wanted);
        let found = all.next().map(|field| field.2.to_vec());
        found.map(|bytes| String::from_utf8(bytes).unwrap())
    };
    for (_, _, packet) in fields(&bytes) {
        for (field, _, inside) in fields(packet) {
            let inside = fields(inside);
            match field {
                60 => {
                    let uuid = of(&inside, 1).unwrap();
                    tracks.insert(uuid, text_of(&inside, 2).unwrap());
                }
                // The end of a slice has no value.
                11 if of(&inside, 9) != Some(2) => {
                    let track = &tracks[&of(&inside, 11).unwrap()];
                    let (mut value, mut text) = (of(&inside, 30), String::new());
                    for (_, _, annotation) in inside.iter().filter(|field| field.0 == 4) {
                        let annotation = fields(annotation);
                        value = of(&annotation, 3).or(of(&annotation, 7)).or(value);
                        text = text_of(&annotation, 6).unwrap_or(text);
                    }
                    add(&mut found, track, value.unwrap(), &text);
                }
                _ => {}
            }
        }
    }
    found
}

fn ctf(folder: &Path) -> Found {
    let mut found = Found::new();
    let metadata = std::fs::read_to_string(folder.join("metadata")).unwrap();
    let classes = metadata.lines().filter_map(|line| {
        let (name, rest) = line.strip_prefix("event { name = \"")?.split_once('"')?;
        let number = rest.split_once("id = ")?.1.split_once(';')?.0;
        let is_text = rest.contains("string");
        Some((number.parse::<u32>().unwrap(), (name.to_owned(), is_text)))
    });
    let classes: BTreeMap<u32, (String, bool)> = classes.collect();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.ends_with("metadata") {
            continue;
        }
        let bytes = std::fs::read(path).unwrap();
        let mut packets = bytes.as_slice();
        while !packets.is_empty() {
            let word = |bytes: &[u8]| u64::from_le_bytes(bytes[..8].try_into().unwrap());
            let length = usize::try_from(word(&packets[24..])).unwrap() / 8;
            let (packet, rest) = packets.split_at(length);
            packets = rest;
            let mut events = &packet[8 + 5 * 8 + 4..];
            while !events.is_empty() {
                let class = u32::from_le_bytes(events[..4].try_into().unwrap());
                let (name, is_text) = &classes[&class];
                let value = word(&events[12..]);
                events = &events[20..];
                let mut text = String::new();
                if *is_text {
                    let end = events.iter().position(|byte| *byte == 0).unwrap();
                    text = String::from_utf8(events[..end].to_vec()).unwrap();
                    events = &events[end + 1..];
                }
                add(&mut found, name, value, &text);
            }
        }
    }
    found
}

/// Compares the exports to traces with the model: each sample with its value and text.
fn check_traces(recording: &Recording, folder: &Path, case: &Case) {
    let mut expected = Found::new();
    for row in case.rows() {
        let place = (0..MEANINGS.len()).find(|place| id(*place) == row.sample.id);
        let name = format!("{:?}", MEANINGS[place.unwrap()]);
        add(&mut expected, &name, row.sample.value, &row.text);
    }
    let formats: [(Format, ReadTrace); 4] = [
        (Format::JsonLines, json_lines),
        (Format::Chrome, chrome),
        (Format::Perfetto, perfetto),
        (Format::Ctf, ctf),
    ];
    for values in expected.values_mut() {
        values.sort_unstable();
    }
    for (format, read) in formats {
        let path = folder.join("a").with_extension(format.extension());
        let exported = export_to(recording, format, &path, &mut |_| ControlFlow::Continue(()));
        assert_eq!(exported.unwrap().samples, case.samples.len() as u64);
        let mut found = read(&path);
        for values in found.values_mut() {
            values.sort_unstable();
        }
        assert_eq!(found, expected, "{format}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn every_output_shows_the_numbers_of_the_model(case in case()) {
        let dir = tempfile::tempdir().unwrap();
        let recording = case.record(&dir.path().join("a.arrow"));
        let expected = case.expected();
        let found = profiles(&recording, None, 4, |_| true);
        prop_assert!(found.damaged.is_empty());
        prop_assert_eq!(found.instruments.len(), expected.len());
        for (profile, of) in found.instruments.iter().zip(&expected) {
            check_profile(profile, of);
        }
        check_chart(&recording, &expected);
        check_comparison(&recording, &expected);
        check_csv(&recording, &dir.path().join("a.csv"), &case);
        check_traces(&recording, dir.path(), &case);
    }

    #[test]
    fn a_joined_recording_shows_the_numbers_of_each_machine(one in case(), other in case()) {
        let dir = tempfile::tempdir().unwrap();
        let paths = ["web1", "web2"].map(|name| dir.path().join(name).with_extension("arrow"));
        let cases = [&one, &other];
        for (case, path) in cases.iter().zip(&paths) {
            case.record(path);
        }
        let joined = Joined::open(&paths).unwrap();
        let path = dir.path().join("both.arrow");
        joined.write(&path, |_| {}).unwrap();
        let recording = Recording::open(&path).unwrap();
        let whole = profiles(&recording, None, 4, |_| true);
        let lossy = cases.iter().any(|case| !case.losses.is_empty());
        // A machine whose rows end earlier was lost then; the joint file does not know that.
        let ends = cases.iter().map(|case| case.end).max().unwrap();
        let expected = cases
            .iter()
            .flat_map(|case| case.expected().into_iter().zip(&case.placed));
        prop_assert_eq!(whole.instruments.len(), 2 * MEANINGS.len());
        let measured = joined.measured().unwrap();
        for ((profile, info), (of, (launch, splash))) in
            whole.instruments.iter().zip(&measured.instruments).zip(expected)
        {
            prop_assert_eq!(profile.hits, of.hits, "{}", &profile.label);
            prop_assert!((info.splash - info.launch - of.seconds).abs() < 1e-5, "{:?}", info);
            let seconds = match splash {
                Some(_) => of.seconds,
                None => (ends + 1 - launch) as f64 / HZ as f64,
            };
            prop_assert!((profile.seconds - seconds).abs() < 1e-5, "{:?}", profile);
            prop_assert_eq!(profile.rate.at_least, lossy);
        }
        let lines = dir.path().join("both.jsonl");
        export_to(&recording, Format::JsonLines, &lines, &mut |_| ControlFlow::Continue(())).unwrap();
        let lines = std::fs::read_to_string(&lines).unwrap();
        let texts = lines.lines().filter_map(|line| {
            let line: Value = serde_json::from_str(line).unwrap();
            Some(line.get("text")?.as_str()?.to_owned())
        });
        let mut texts: Vec<String> = texts.collect();
        let rows = cases.iter().flat_map(|case| case.rows());
        let mut expected: Vec<String> = rows.map(|row| row.text).filter(|text| !text.is_empty()).collect();
        texts.sort_unstable();
        expected.sort_unstable();
        prop_assert_eq!(texts, expected);
    }
}

/// Returns the hits and statistics of values that polars computes from a Parquet export.
fn polars(file: &Path) -> Vec<Vec<f64>> {
    let python = PathBuf::from(std::env::var_os("GILK_PYTHON").expect("GILK_PYTHON"));
    let program = r#"
import polars as pl, sys
rows = pl.read_parquet(sys.argv[1]).filter(pl.col("kind") == 0)
value = pl.col("value")
table = rows.group_by("id").agg(pl.len().alias("n"), value.min().alias("min"), value.max().alias("max"), value.mean().alias("mean"), value.std(ddof=0).alias("std"))
for row in table.sort("id").iter_rows(): print(*row)
"#;
    let output = std::process::Command::new(python)
        .args(["-c", program])
        .arg(file)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8(output.stdout).unwrap();
    let line = |line: &str| line.split(' ').map(|word| word.parse().unwrap()).collect();
    text.lines().map(line).collect()
}

#[test]
#[ignore = "needs GILK_PYTHON, a python with polars; cargo xtask test makes one"]
fn polars_computes_the_same_statistics_from_the_exported_file() {
    use proptest::strategy::ValueTree as _;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    for _ in 0..6 {
        let case = case().new_tree(&mut runner).unwrap().current();
        let dir = tempfile::tempdir().unwrap();
        let recording = case.record(&dir.path().join("a.arrow"));
        let file = dir.path().join("a.parquet");
        export_to(&recording, Format::Parquet, &file, &mut |_| {
            ControlFlow::Continue(())
        })
        .unwrap();
        let found = profiles(&recording, None, 0, |_| true);
        let active = found.instruments.iter().filter(|of| of.hits > 0);
        let active: Vec<&Profile> = active.collect();
        for row in polars(&file) {
            let &[id, count, min, max, mean, deviation] = &row[..] else {
                panic!("{row:?}")
            };
            let Some(profile) = active.iter().find(|of| of.id == id as u64) else {
                // A counter that was read and never hit.
                assert_eq!(max, 0.0, "{row:?}");
                continue;
            };
            let hits = if profile.meaning == Meaning::Count {
                max
            } else {
                count
            };
            assert_eq!(profile.hits as f64, hits, "{row:?}");
            if let Some(values) = &profile.values {
                assert_eq!([values.min as f64, values.max as f64], [min, max]);
                assert!((values.mean - mean).abs() < 1e-6, "{row:?}");
                assert!((values.deviation - deviation).abs() < 1e-6, "{row:?}");
            }
        }
    }
}
