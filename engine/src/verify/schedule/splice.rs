//! Proof that the bytes of a splice branch to its patch.

use crate::Addr;
use crate::ids::Id;
use crate::placement::{SPLICE_BYTES, Splice};
use crate::plan::{Part, PatchIndex, Plan};
use crate::verify::reason::Reason;

/// Opcode of `int3`.
const INT3: u8 = 0xcc;
/// Opcode of `call rel32`.
const CALL: u8 = 0xe8;

/// Returns whether a part is rewritten when its patch gets another version. A short splice is not:
/// its bounce is.
pub(crate) fn is_retargeted(plan: &Plan, part: Part) -> bool {
    match part {
        Part::Bounce(_) => true,
        Part::Site(site) => plan
            .site(site)
            .is_some_and(|site| !matches!(site.splice, Splice::Short(_))),
    }
}

/// Proves that `bytes`, written as a part, branch to the patch, directly or through a bounce.
///
/// # Errors
/// The bytes are a different instruction.
pub(crate) fn leads(
    plan: &Plan,
    part: Part,
    bytes: &[u8],
    patch: PatchIndex,
) -> Result<(), Reason> {
    let to = plan.patch(patch).ok_or(Reason::NoPatch)?;
    let site = match part {
        Part::Bounce(number) => {
            let bounce = plan.bounce(number).ok_or(Reason::NoBounce)?;
            return is_jump(bytes, bounce.at, to.address, patch);
        }
        Part::Site(site) => plan.site(site),
    };
    let site = site.ok_or(Reason::NoSite)?;
    let at = site.displaced.start;
    match site.splice {
        Splice::Jump => is_jump(bytes, at, to.address, patch),
        Splice::Call => match *bytes {
            [CALL, a, b, c, d] if branches(at, [a, b, c, d]) == to.address => Ok(()),
            _ => Err(Reason::NotCall {
                bytes: bytes.to_vec(),
                patch: patch.index(),
                at: to.address,
            }),
        },
        Splice::Short(number) => {
            let bounce = plan.bounce(number).ok_or(Reason::NoBounce)?;
            let near = match *bytes {
                [0xeb, displacement] => Some(Addr(
                    at.0.wrapping_add(2)
                        .wrapping_add_signed(displacement.cast_signed().into()),
                )),
                _ => None,
            };
            if near == Some(bounce.at) {
                Ok(())
            } else {
                Err(Reason::NotShort {
                    bytes: bytes.to_vec(),
                    bounce: bounce.at,
                })
            }
        }
        Splice::Tracer if bytes.is_empty() => Ok(()),
        Splice::Trap if bytes == [INT3] => Ok(()),
        Splice::Tracer | Splice::Trap => Err(Reason::NotSplice),
    }
}

/// Returns the target of a branch of five bytes at `at`.
fn branches(at: Addr, displacement: [u8; 4]) -> Addr {
    let displacement = i64::from(i32::from_le_bytes(displacement));
    let next = at.0.wrapping_add(SPLICE_BYTES);
    Addr(next.wrapping_add_signed(displacement))
}

/// Checks that the bytes are a `jmp rel32` to the patch.
fn is_jump(bytes: &[u8], at: Addr, to: Addr, patch: PatchIndex) -> Result<(), Reason> {
    let leads_to = match *bytes {
        [0xe9, a, b, c, d] => Some(branches(at, [a, b, c, d])),
        _ => None,
    };
    if leads_to == Some(to) {
        Ok(())
    } else {
        Err(Reason::NotJump {
            bytes: bytes.to_vec(),
            patch: patch.index(),
            at: to,
        })
    }
}
