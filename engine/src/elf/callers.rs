//! The ways to find the callers of an object's code, by its unwind table (`.eh_frame`).
//!
//! A rule that rows cannot state ends a stack: a frame whose end depends on other registers than rsp and rbp, as in
//! functions that align their stack while they do so, or on an expression of another form, as in stubs of procedure
//! linkage tables.

use gimli::{
    BaseAddresses, CfaRule, CieOrFde, EhFrame, LittleEndian, Operation, RegisterRule,
    UnwindContext, UnwindExpression, UnwindSection, UnwindTableRow, X86_64,
};
use object::{Object, ObjectSection, SectionKind};

use super::file::bad;
use super::frames::Bytes;
use crate::stacks::CallerRule;
use crate::{Addr, Result, Span};

type Table<'f> = EhFrame<Bytes<'f>>;

/// `mov rax, 15; syscall`: C libraries return from handlers of signals by it (`rt_sigreturn(2)`).
const SIGNAL_RETURN: [u8; 9] = [0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05];

/// Reads the rules of an object that is loaded `slide` bytes above the addresses in its file, in no order. Rules that the
/// code returns from handlers of signals by are the last ones.
///
/// # Errors
/// [`Error::Elf`](crate::Error::Elf) if the file is no ELF file, or its unwind table is damaged.
pub fn caller_rules(file: &[u8], slide: u64) -> Result<Vec<(Span, CallerRule)>> {
    let damaged = |error: object::Error| bad(format!("its sections are damaged: {error}"));
    let elf = object::File::parse(file).map_err(damaged)?;
    let mut rules = Vec::new();
    if let Some(section) = elf.section_by_name(".eh_frame") {
        let bytes = section.data().map_err(damaged)?;
        let start = section.address().wrapping_add(slide);
        read(bytes, (start, slide), &mut rules)
            .map_err(|error| bad(format!("its .eh_frame is damaged: {error}")))?;
    }
    for section in elf.sections() {
        if section.kind() != SectionKind::Text {
            continue;
        }
        let bytes = section.data().map_err(damaged)?;
        let start = Addr(section.address().wrapping_add(slide));
        let found = bytes.windows(SIGNAL_RETURN.len()).zip(0_u64..);
        let found = found.filter(|(bytes, _)| *bytes == SIGNAL_RETURN);
        // The byte before it is that of the return address.
        rules.extend(found.map(|(_, at)| {
            let early = Addr(start.0.wrapping_add(at).wrapping_sub(1));
            let span = Span::new(early, SIGNAL_RETURN.len() as u64 + 1);
            (span, CallerRule::Signal)
        }));
    }
    Ok(rules)
}

fn read(
    bytes: &[u8],
    (start, slide): (u64, u64),
    rules: &mut Vec<(Span, CallerRule)>,
) -> gimli::Result<()> {
    let mut table = EhFrame::new(bytes, LittleEndian);
    table.set_address_size(8);
    let bases = BaseAddresses::default().set_eh_frame(start);
    let mut context = UnwindContext::new();
    let mut entries = table.entries(&bases);
    while let Some(entry) = entries.next()? {
        let CieOrFde::Fde(partial) = entry else {
            continue;
        };
        let entry = partial.parse(EhFrame::cie_from_offset)?;
        let first = entry.initial_address();
        // The linker has removed the function.
        if entry.len() == 0 || first == slide || first == 0 {
            continue;
        }
        let encoding = entry.cie().encoding();
        let is_signal = entry.is_signal_trampoline();
        let mut rows = entry.rows(&table, &bases, &mut context)?;
        while let Some(row) = rows.next_row()? {
            let rule = match is_signal {
                true => CallerRule::Signal,
                false => rule(row, &table, encoding).unwrap_or(CallerRule::End),
            };
            let span = Span {
                start: Addr(row.start_address()),
                end: Addr(row.end_address()),
            };
            if span.start < span.end {
                rules.push((span, rule));
            }
        }
    }
    Ok(())
}

/// Returns the rule of a row; `None` if there is no caller, or rules cannot state it.
fn rule(
    row: &UnwindTableRow<usize>,
    table: &Table<'_>,
    encoding: gimli::Encoding,
) -> Option<CallerRule> {
    match row.register(X86_64::RA) {
        Some(RegisterRule::Offset(-8)) => {}
        _ => return None,
    }
    let rbp = row.register(X86_64::RBP);
    let saved = match rbp {
        None | Some(RegisterRule::SameValue) => Some(0),
        Some(RegisterRule::Offset(offset)) => i16::try_from(offset).ok(),
        // A function that has rbp in no place has no caller that needs it, or stops here.
        _ => None,
    };
    match row.cfa() {
        CfaRule::RegisterAndOffset { register, offset } => {
            let (end, saved_rbp) = (i32::try_from(*offset).ok()?, saved?);
            match *register {
                X86_64::RSP => Some(CallerRule::Stack { end, saved_rbp }),
                X86_64::RBP => Some(CallerRule::Base { end, saved_rbp }),
                _ => None,
            }
        }
        CfaRule::Expression(expression) => {
            let [
                Operation::RegisterOffset {
                    register, offset, ..
                },
                Operation::Deref { size: 8, .. },
            ] = operations(expression, table, encoding)?[..]
            else {
                return None;
            };
            let Some(RegisterRule::Expression(saved)) = rbp else {
                return None;
            };
            let is_base = matches!(
                operations(&saved, table, encoding)?[..],
                [Operation::RegisterOffset {
                    register: X86_64::RBP,
                    offset: 0,
                    ..
                }]
            );
            let end = i32::try_from(offset).ok()?;
            (is_base && register == X86_64::RBP).then_some(CallerRule::Aligned { end })
        }
    }
}

/// Returns the operations of an expression, if it is read.
fn operations<'f>(
    expression: &UnwindExpression<usize>,
    table: &Table<'f>,
    encoding: gimli::Encoding,
) -> Option<Vec<Operation<Bytes<'f>>>> {
    let mut operations = expression.get(table).ok()?.operations(encoding);
    let mut all = Vec::new();
    while let Some(operation) = operations.next().ok()? {
        all.push(operation);
    }
    Some(all)
}
