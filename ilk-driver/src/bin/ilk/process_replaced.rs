//! Functions of a process that are replaced by functions of object files.

use gilk_engine::session::Placement;
use gilk_engine::{HookType, Session};
use gilk_instruments::Library;
use ilk_driver::process::replacements;

/// A function, and the instrument by which it is replaced.
#[derive(Clone)]
pub(crate) struct Replaced {
    pub(crate) function: String,
    instrument: String,
}

impl Replaced {
    /// Its placement in a session of so many seconds.
    pub(crate) fn placement(&self, duration: f64) -> Placement {
        Placement {
            function: self.function.as_str().into(),
            block: 0,
            hook: HookType::Pre,
            instrument: self.instrument.as_str().into(),
            launch: 0.0,
            splash: duration,
        }
    }
}

/// Parses `FUNCTION=NAME`.
pub(crate) fn replacement(text: &str) -> Result<Replaced, String> {
    let parts = text.rsplit_once('=');
    let parts =
        parts.filter(|(function, instrument)| !function.is_empty() && !instrument.is_empty());
    let (function, instrument) = parts
        .ok_or("write a function and a name of the object file: 'libc.so.6:malloc=few-bytes'")?;
    Ok(Replaced {
        function: function.to_owned(),
        instrument: instrument.to_owned(),
    })
}

/// Returns the functions that a session replaces, and the names of the instruments by which it does.
pub(crate) fn replaced<'s>(
    session: &'s Session,
    library: &'s Library,
) -> impl Iterator<Item = (&'s str, &'s str)> {
    let placements = replacements(session, library).map(|(placement, _)| placement);
    placements.map(|placement| (&*placement.function, &*placement.instrument))
}
