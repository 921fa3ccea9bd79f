//! Emulation of static keys and static calls at another address.
//!
//! Their bytes cannot be copied: the kernel rewrites the original and would not find the copy. The data that it
//! rewrites by can be read instead. A key's count is set before the text follows
//! (kernel/jump_label.c: `static_key_enable_cpuslocked`, `__static_key_slow_inc_cpuslocked`,
//! `__static_key_slow_dec_cpuslocked`), a call's trampoline is rewritten before the sites are
//! (`__static_call_update` of kernel/static_call_inline.c), so the emulation is never older than
//! the original.

use super::Relocated;
use crate::code::{Decided, Decision, Transfer};
use crate::isa::encode::{INT3, rel32};
use crate::layout::Abi;
use crate::{Addr, Refusal, Rule};

/// Emulates at `to` the kernel's instruction at the site, in whichever state that is.
///
/// A static key overwrites the status flags. Its compiler's statement does too (on x86 every `asm`
/// does), so nothing reads them after a site, but liveness of the live bytes, a nop, does not show
/// that: check the flags there before this is used. A call pushes the original return address.
///
/// # Errors
/// [`Rule::OutOfReach`] if the key, the trampoline or the target cannot be reached from `to`;
/// [`Rule::ShadowStack`] for a call that a shadow stack would refuse.
pub fn emulate(site: &Decided, to: Addr, abi: &Abi) -> Result<Relocated, Refusal> {
    let at = site.span.start;
    let mut done = Relocated {
        bytes: Vec::new(),
        falls_through: true,
        executed: 0,
        rows: Vec::new(),
    };
    done.row(at, 0);
    match site.by {
        Decision::StaticKey {
            key,
            inverted,
            target,
        } => {
            // cmp dword ptr [rip + key], 0
            near(&mut done, to, at, &[0x83, 0x3d], key, &[0])?;
            let condition = if inverted { 0x84 } else { 0x85 };
            near(&mut done, to, at, &[0x0f, condition], target, &[])?;
        }
        Decision::StaticCall {
            trampoline,
            transfer,
        } => match transfer {
            Transfer::Conditional(condition) => {
                let opcode = [0x0f, 0x80 | condition & 15];
                near(&mut done, to, at, &opcode, trampoline, &[])?;
            }
            Transfer::Call | Transfer::Jump => {
                if transfer == Transfer::Call {
                    super::push_return_address(&mut done, site.span.end, at, abi)?;
                }
                near(&mut done, to, at, &[0xe9], trampoline, &[])?;
                done.bytes.push(INT3);
                done.falls_through = false;
            }
        },
    }
    Ok(done)
}

/// Appends an instruction that branches or refers to `target` by its 32 bits between `opcode` and `rest`.
fn near(
    done: &mut Relocated,
    to: Addr,
    at: Addr,
    opcode: &[u8],
    target: Addr,
    rest: &[u8],
) -> Result<(), Refusal> {
    let len = opcode.len() + 4 + rest.len();
    let end = to.add((done.bytes.len() + len) as u64);
    let Some(displacement) = rel32(end, target) else {
        return Err(Refusal::new(
            Rule::OutOfReach,
            at,
            format!("{target}, which decides what it does, is more than 2 GiB from the patch"),
        ));
    };
    done.bytes.extend_from_slice(opcode);
    done.bytes.extend_from_slice(&displacement);
    done.bytes.extend_from_slice(rest);
    done.executed += 1;
    Ok(())
}
