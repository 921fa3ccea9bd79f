//! Runs `filetests/*.gilktest`: a kernel of a few functions, a session, and the expected plan.
//!
//! `BLESS=1 cargo test -p gilk-engine --test filetests` rewrites the expectations; read the
//! difference before you commit it. `filetests/README.md` describes the files.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test's helpers fail the test by panicking"
)]

#[path = "support/small.rs"]
mod small;

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use gilk_engine::layout::RuntimeLayout;
use gilk_engine::listing::disassemble;
use gilk_engine::patch::PieceKind;
use gilk_engine::placement::{Point, Splice, Style, Tactic};
use gilk_engine::plan::{Part, Plan, PokeKind, plan};
use gilk_engine::session::Placement;
use gilk_engine::verify::verify;
use gilk_engine::{Addr, Error, HookType, Image, InstrumentId, Session};
use gilk_instruments::Library;
use small::{Code, Tables, parts};

/// Address of the patches.
const ARENA: u64 = 0xffff_ffff_c000_0000;

/// A parsed file.
struct Case {
    /// Everything before the expected plan, with code lines normalized.
    head: String,
    functions: Vec<Code>,
    tables: Tables,
    session: Session,
    expected: String,
}

#[test]
fn plans_match_their_files() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/filetests");
    let mut paths: Vec<PathBuf> = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|end| end == "gilktest"))
        .collect();
    paths.sort();
    assert!(paths.len() >= 12, "{} files are too few", paths.len());
    let bless = std::env::var_os("BLESS").is_some();
    let mut failures = String::new();
    for path in paths {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let text = fs::read_to_string(&path).unwrap();
        let case = parse(&name, &text);
        let image = Image::from_live(&parts(&case.functions, &case.tables))
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        let printed = format!(
            "{}-- plan\n{}",
            normalized(&case, &image),
            planned(&image, &case)
        );
        if printed == text {
            continue;
        }
        if bless {
            fs::write(&path, &printed).unwrap();
        } else {
            let differing = text.lines().zip(printed.lines()).position(|(a, b)| a != b);
            let line =
                differing.unwrap_or_else(|| text.lines().count().min(printed.lines().count()));
            let at = |text: &str| text.lines().nth(line).unwrap_or("(end)").to_owned();
            let _ = writeln!(
                failures,
                "{name}:{}:\n  expected {}\n  printed    {}",
                line + 1,
                at(&text),
                at(&printed)
            );
        }
        assert!(
            !case.expected.is_empty() || bless,
            "{name} has no expected plan; run with BLESS=1"
        );
    }
    assert!(
        failures.is_empty(),
        "{failures}run with BLESS=1 to rewrite the files, and read the difference"
    );
}

#[test]
fn each_tactic_has_a_file() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/filetests");
    let files = fs::read_dir(folder).unwrap();
    let texts: String = files
        .map(|file| fs::read_to_string(file.unwrap().path()).unwrap())
        .collect();
    for tactic in Tactic::ALL {
        let reached = format!(": {tactic}");
        assert!(
            texts.lines().any(|line| line.ends_with(&reached)),
            "{tactic}"
        );
    }
}

/// Parses a file; a mistake in it names the line.
fn parse(name: &str, text: &str) -> Case {
    let mut case = Case {
        head: String::new(),
        functions: Vec::new(),
        tables: Tables::default(),
        session: Session::empty(),
        expected: String::new(),
    };
    let mut section = "";
    let mut lines = text.lines().enumerate();
    for (number, line) in lines.by_ref() {
        let wrong = |reason: &str| -> ! { panic!("{name}:{}: {reason}: {line}", number + 1) };
        if let Some(title) = line.strip_prefix("-- ") {
            section = title;
            if section == "plan" {
                break;
            }
        } else if line.is_empty() || line.starts_with('#') {
        } else if section == "code" {
            code_line(&mut case, line).unwrap_or_else(|reason| wrong(reason));
        } else if section == "session" {
            session_line(&mut case.session, line).unwrap_or_else(|| wrong("no placement"));
        } else if let Some(instrument) = section.strip_prefix("instrument ") {
            let source = case
                .session
                .sources
                .entry(instrument.to_owned())
                .or_default();
            source.push_str(line);
            source.push('\n');
        } else {
            wrong("no section has begun");
        }
        let _ = writeln!(case.head, "{line}");
    }
    for (_, line) in lines {
        let _ = writeln!(case.expected, "{line}");
    }
    case
}

/// Parses a function's head, an instruction, or a fact of the kernel's tables.
fn code_line(case: &mut Case, line: &str) -> Result<(), &'static str> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let place = |word: &str| place(&case.functions, word).ok_or("no such place");
    match words.as_slice() {
        [name, "at", at] => {
            let at = at
                .strip_prefix("0x")
                .and_then(|at| u64::from_str_radix(at.trim_end_matches(':'), 16).ok());
            case.functions.push(Code {
                name: (*name).to_owned(),
                at: at.ok_or("no address")?,
                bytes: Vec::new(),
            });
        }
        ["@static-key", code, "->", target] => {
            let key = (place(code)?, place(target)?);
            case.tables.keys.push(key);
        }
        ["@static-call", code] => {
            let call = place(code)?;
            case.tables.calls.push(call);
        }
        ["@exception", code, "->", fixup] => {
            let exception = (place(code)?, place(fixup)?);
            case.tables.exceptions.push(exception);
        }
        ["@pointer", target] => {
            let pointer = place(target)?;
            case.tables.pointers.push(pointer);
        }
        _ => {
            let function = case.functions.last_mut().ok_or("code outside a function")?;
            let bytes = line.split(';').next().unwrap_or_default();
            let repeated = bytes.split_once('*');
            let (bytes, times) = match repeated {
                Some((bytes, times)) => (bytes, times.trim().parse().map_err(|_| "no number")?),
                None => (bytes, 1),
            };
            let bytes: Result<Vec<u8>, _> = bytes
                .split_whitespace()
                .map(|byte| u8::from_str_radix(byte, 16))
                .collect();
            let bytes = bytes.map_err(|_| "not bytes in hexadecimal")?;
            for _ in 0..times {
                function.bytes.extend(&bytes);
            }
        }
    }
    Ok(())
}

/// Returns the address of `f+0x10`.
fn place(functions: &[Code], word: &str) -> Option<u64> {
    let (name, offset) = word.split_once("+0x").unwrap_or((word, "0"));
    let function = functions.iter().find(|code| code.name == name)?;
    Some(function.at + u64::from_str_radix(offset, 16).ok()?)
}

/// Parses `instrument hook function block [launch splash]`, `style function style` or `save-all`.
fn session_line(session: &mut Session, line: &str) -> Option<()> {
    let words: Vec<&str> = line.split_whitespace().collect();
    match words.as_slice() {
        ["save-all"] => session.save_all = true,
        ["style", function, style] => {
            let style = match *style {
                "whole" => Style::Whole,
                "auto" => Style::Auto,
                "in-place" => Style::InPlace,
                _ => return None,
            };
            session.styles.insert((*function).to_owned(), style);
        }
        [instrument, hook, function, block, times @ ..] => {
            let (launch, splash) = match times {
                [] => (0.0, 1.0),
                [launch, splash] => (launch.parse().ok()?, splash.parse().ok()?),
                _ => return None,
            };
            session.placements.push(Placement {
                function: (*function).into(),
                block: block.parse().ok()?,
                hook: match *hook {
                    "pre" => HookType::Pre,
                    "post" => HookType::Post,
                    "taken" => HookType::Taken,
                    "untaken" => HookType::Untaken,
                    _ => return None,
                },
                instrument: (*instrument).into(),
                launch,
                splash,
            });
        }
        _ => return None,
    }
    Some(())
}

/// Returns the file's head with the disassembly of its code.
fn normalized(case: &Case, image: &Image) -> String {
    let mut out = String::new();
    let mut section = "";
    let mut function = 0;
    for line in case.head.lines() {
        if let Some(title) = line.strip_prefix("-- ") {
            section = title;
        }
        let is_bytes = section == "code" && line.starts_with(' ');
        if section == "code" && line.contains(" at 0x") {
            let _ = writeln!(out, "{line}");
            let code = case.functions.get(function).unwrap();
            function += 1;
            let mut nops: Option<(String, usize)> = None;
            let mut lines = disassemble(Some(image), Addr(code.at), &code.bytes)
                .into_iter()
                .peekable();
            while let Some(instruction) = lines.next() {
                let bytes = hex(&instruction.bytes);
                let repeats = nops.as_ref().map_or(1, |(_, count)| *count);
                if lines
                    .peek()
                    .is_some_and(|next| next.bytes == instruction.bytes)
                    && instruction.bytes == [0x90]
                {
                    nops = Some((bytes, repeats + 1));
                    continue;
                }
                nops = None;
                let bytes = if repeats > 1 {
                    format!("{bytes} * {repeats}")
                } else {
                    bytes
                };
                let _ = writeln!(out, "    {bytes:30} ; {}", instruction.text);
            }
        } else if !is_bytes {
            let _ = writeln!(out, "{line}");
        }
    }
    out
}

/// Plans the session, verifies the plan, and describes it.
fn planned(image: &Image, case: &Case) -> String {
    let library = Library::builtin().unwrap();
    let layout = RuntimeLayout::supposed(Addr(ARENA));
    let plan = match plan(image, &case.session, &library, &layout) {
        Ok(plan) => plan,
        Err(Error::Refused { refusal, .. }) => {
            return format!("refused: {}\n", refusal.rule.name());
        }
        Err(error) => return format!("error: {error}\n"),
    };
    let text = described(image, &plan);
    if let Err(violations) = verify(image, plan) {
        panic!("the plan is not verified: {violations:#?}\n{text}");
    }
    text
}

fn described(image: &Image, plan: &Plan) -> String {
    let mut out = String::new();
    for one in &plan.instruments {
        let _ = writeln!(out, "{}: {}", label(plan, one.id), one.tactic.name());
        for &(site, point) in &one.points {
            let _ = writeln!(out, "    {} of site {}", at_point(image, point), site.0);
        }
        for site in &one.needs {
            let _ = writeln!(out, "    depends on site {}", site.0);
        }
    }
    for (number, site) in plan.sites.iter().enumerate() {
        let form = match site.splice {
            Splice::Jump => "jump".to_owned(),
            Splice::Short(bounce) => format!("short jump to bounce {}", bounce.0),
            Splice::Tracer => "call by the function tracer".to_owned(),
            Splice::Trap => "int3".to_owned(),
            Splice::Call => "call".to_owned(),
            other => format!("{other:?}"),
        };
        let at = symbol(image, site.displaced.start);
        let _ = writeln!(out, "\nsite {number} at {at}: {form}, displaces");
        lines(
            &mut out,
            image,
            site.displaced.start,
            image.bytes(site.displaced).unwrap(),
        );
        for (number, patch) in plan.patches.iter().enumerate() {
            if plan.sites.get(patch.site.0 as usize) != Some(site) {
                continue;
            }
            let _ = writeln!(out, "  patch {number}:");
            for piece in patch.pieces() {
                let kind = match piece.kind {
                    PieceKind::Save => "save".to_owned(),
                    PieceKind::Instrument(id) => label(plan, id),
                    PieceKind::Restore => "restore".to_owned(),
                    PieceKind::Relocated => "copy of the original code".to_owned(),
                    PieceKind::Terminating => "exit".to_owned(),
                    PieceKind::Lost(id) => format!("lost samples of {}", label(plan, id)),
                    PieceKind::Descriptors => "descriptors".to_owned(),
                };
                let _ = writeln!(out, "   ; {kind}");
                let code = patch
                    .code
                    .get(piece.range.start as usize..piece.range.end as usize)
                    .unwrap();
                lines(
                    &mut out,
                    image,
                    patch.address.add(u64::from(piece.range.start)),
                    code,
                );
            }
        }
    }
    for batch in &plan.batches {
        let _ = writeln!(out, "\nat {} s", batch.at);
        for poke in &batch.pokes {
            let kind = match poke.kind {
                PokeKind::Install => "install",
                PokeKind::Retarget => "retarget",
                PokeKind::Remove => "remove",
            };
            let part = match poke.part {
                Part::Site(site) => format!("site {}", site.0),
                Part::Bounce(bounce) => format!("bounce {}", bounce.0),
            };
            let at = symbol(image, poke.at);
            let (before, after) = (hex(&poke.expect), hex(&poke.write));
            let _ = writeln!(
                out,
                "  rank {} {kind} {part} at {at}: {before} -> {after}",
                poke.rank
            );
        }
    }
    out
}

fn lines(out: &mut String, image: &Image, at: Addr, code: &[u8]) {
    for line in disassemble(Some(image), at, code) {
        let _ = writeln!(
            out,
            "    {:8} {:30} {}",
            offset(line.at),
            hex(&line.bytes),
            line.text
        );
    }
}

/// Returns the low digits of an address in the arena or the text.
fn offset(at: Addr) -> String {
    if at.0 >= ARENA {
        format!("p+{:x}", at.0 - ARENA)
    } else {
        format!("{:x}", at.0 & 0xff_ffff)
    }
}

fn symbol(image: &Image, at: Addr) -> String {
    match image.symbol_at(at) {
        Some((name, offset)) => format!("{name}+{offset:#x}"),
        None => at.to_string(),
    }
}

fn at_point(image: &Image, point: Point) -> String {
    match point {
        Point::Entry => "at the start".to_owned(),
        Point::Before(at) => format!("before {}", symbol(image, at)),
        Point::On(edge) => format!(
            "on the edge from {} to {}",
            symbol(image, edge.from),
            symbol(image, edge.to)
        ),
    }
}

fn label(plan: &Plan, id: InstrumentId) -> String {
    let instrument = plan.instrument(id).unwrap();
    let function = plan.function(id.major).unwrap();
    format!(
        "{} {} {} block {}",
        instrument.definition.name, id.hook, function.name, id.block
    )
}

fn hex(bytes: &[u8]) -> String {
    let bytes: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    bytes.join(" ")
}
