//! The code of native instruments: at the start of the arena, before all patches.

use gilk_instruments::Program;

use super::error::{internal, refused};
use super::functions::Functions;
use super::model::PlannedInstrument;
use crate::layout::{Abi, PATCH_ALIGN, RuntimeLayout};
use crate::native::{NativeCode, load};
use crate::patch::{Called, HookProgram};
use crate::session::Session;
use crate::{Error, Image, Refusal, Result, Rule};

/// Every object file that the session calls.
#[derive(Default)]
pub(super) struct Natives {
    pub(super) codes: Vec<NativeCode>,
    /// Bytes from the start of the arena.
    pub(super) length: u64,
}

impl Natives {
    /// Links them, one after the other.
    ///
    /// # Errors
    /// [`Error::Refused`] by [`Rule::NativeUnsafe`], at the first instrument that needs it; [`Error::Full`].
    pub(super) fn of(
        image: &Image,
        session: &Session,
        functions: &Functions<'_>,
        instruments: &[PlannedInstrument],
        layout: &RuntimeLayout,
    ) -> Result<Self> {
        let mut natives = Self::default();
        let touched = |id| functions.has(id);
        for instrument in instruments {
            let native = instrument.definition.native();
            let Some(native) = native.filter(|native| !native.replaces) else {
                continue;
            };
            if natives.codes.iter().any(|known| known.is_of(native)) {
                continue;
            }
            let address = layout.arena.start.add(natives.length);
            if layout.abi != Abi::KERNEL {
                let why = format!(
                    "{} is compiled for the kernel's conventions, and the target has others",
                    native.file
                );
                let refusal = Refusal::new(Rule::NativeUnsafe, address, why);
                return Err(refused(session, instrument.placement, refusal));
            }
            let code = load(native, image, address, &touched).map_err(|why| {
                let refusal = Refusal::new(
                    Rule::NativeUnsafe,
                    address,
                    format!("{}: {why}", native.file),
                );
                refused(session, instrument.placement, refusal)
            })?;
            natives.length += (code.bytes.len() as u64).next_multiple_of(PATCH_ALIGN);
            natives.codes.push(code);
        }
        if natives.length > layout.arena.len() {
            return Err(Error::Full {
                what: "bytes of native code",
                needed: natives.length,
                available: layout.arena.len(),
            });
        }
        Ok(natives)
    }

    /// Returns the code of an instrument's hit.
    pub(super) fn program<'p>(
        &self,
        one: &'p PlannedInstrument,
        layout: &RuntimeLayout,
    ) -> Result<HookProgram<'p>> {
        match &one.definition.program {
            Program::Native(native) if native.replaces => {
                let entry = layout.replacement(native);
                let entry = entry.ok_or_else(|| internal("a replacement is not loaded"))?;
                Ok(HookProgram::Replaced(entry))
            }
            Program::Source(_) => {
                let probed = one.probe.as_deref();
                Ok(HookProgram::Probe(probed.ok_or_else(|| {
                    internal("an instrument in the language has no probe")
                })?))
            }
            Program::Native(native) => {
                let code = self.codes.iter().find(|code| code.is_of(native));
                let entry = code.and_then(|code| code.entry(&native.function));
                let entry = entry.ok_or_else(|| {
                    internal("an object file was loaded without the function that is called")
                })?;
                Ok(HookProgram::Native(Called { native, entry }))
            }
        }
    }
}
